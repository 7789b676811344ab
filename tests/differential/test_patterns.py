"""Regular expressions of clients match what RE2/J matches, which Kafka uses for them."""

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from gateway.regex import InvalidPattern, Pattern
from tests.support.client_java import java_command, why_no_java_client

RANDOM_PATTERNS: Final = 4_000
TIMEOUT_S: Final = 120.0
LITERALS: Final = [
    "a",
    "b",
    "A",
    "k",
    "1",
    "_",
    "-",
    "é",
    "É",
    "日",
    " ",
    "{",
    "}",
    "{a}",
    "{,2}",
    "[{]+",
    "{+",
]
GROUPS: Final = ["(a|b)", "(?:ab)", "()", "(|a)+", "(a|)", "(?:a*)*", "(a{2}){2}", "(?P<n>a)", "(?<m>b)"]
BAD_GROUPS: Final = [
    "(?P<>a)",
    "(?P<n-x>a)",
    "(?=a)",
    "(?!a)",
    "(?<=a)",
    "(?#c)",
    "(?>a)",
    "(",
    "(?",
    "(?P",
    ")",
]
FLAGS: Final = [
    "(?i)",
    "(?m)",
    "(?s)",
    "(?U)",
    "(?-i)",
    "(?i:a)",
    "(?i-s:A)",
    "(?)",
    "(?-)",
    "(?i-)",
    "(?--i)",
]
CLASSES: Final = [
    *("[ab]", "[^a]", "[a-c]", "[]a]", "[^]a]", r"[\d-z]", r"[a\-z]", "[a&&b]", "[-a]", "[a-]", "[--a]"),
    *("[[:alpha:]]", "[[:^alpha:]]", "[[:foo:]]", "[[:alpha:]", "[:alpha:]", "[[:word:]]", "[[.a.]]"),
    *(
        "[",
        "[a",
        "[a-",
        "[b-a]",
        r"[a-\d]",
        r"[\w-a]",
        r"[\Qa]\E]",
        r"[\b]",
        r"[\x61-c]",
        r"[^\pL]",
        r"[\PL1]",
    ),
]
FOLDED: Final = [
    *("(?i)k", "(?i)[k]", "(?i)[^k]", r"(?i)\w", "(?i)\u017f", "(?i)é", "(?i)ω", r"(?i)\P{Lu}"),
    *("(?i)[[:upper:]]", "(?i)[^[:upper:]]"),
]
ESCAPES: Final = [
    *(r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\C", "^", "$", "."),
    *(
        r"\pL",
        r"\PL",
        r"\p{L}",
        r"\p{Lu}",
        r"\p{^Lu}",
        r"\P{Lu}",
        r"\p{Any}",
        r"\pX",
        r"\p{Foo}",
        r"\p{",
        r"\p",
    ),
    *(r"\Qa.b\E", r"\Q", r"\E", r"\x61", r"\x{61}", r"\x{110000}", r"\x6", r"\141", r"\1", r"\0", r"\8"),
    *(
        r"\a",
        r"\_",
        r"\.",
        r"\-",
        r"\q",
        r"\é",
        r"\n",
        "(?s).",
        "(?m)$",
        r"\pN",
        r"\p{Nd}",
        r"\p{Greek}",
        r"\p{Han}+",
    ),
]
OPERATORS: Final = [
    *("|", "*", "+", "?", "??", "*?", "+?", "**", "{1}", "a{2}", "a{0}", "a{0,1}", "a{1,}", "a{2,1}"),
    *("a{1001}", "a{1000}", "a{01}", "a{1,02}", "a{99999999}"),
]
PARTS: Final = [*LITERALS, *GROUPS, *BAD_GROUPS, *FLAGS, *CLASSES, *FOLDED, *ESCAPES, *OPERATORS]
TEXTS: Final = [
    *("", "a", "b", "A", "ab", "aa", "ba", "abc", "a.b", "k", "K", "\u212a", "s", "\u017f", "é", "É", "日"),
    *(
        "1",
        "_",
        "-",
        " ",
        "aaaa",
        "a{",
        "a{,2}",
        "{",
        "}",
        "]",
        "a\x01b",
        "ω",
        "Ω",
        "\u2126",
        "z",
        "\\",
        "[",
        ":",
    ),
]


def cases() -> list[tuple[str, str]]:
    """(pattern, text): each part with each text, and random patterns, the same ones every time."""
    chosen = random.Random(1)
    made = ["".join(chosen.choices(PARTS, k=chosen.randint(2, 5))) for _ in range(RANDOM_PATTERNS)]
    some = [(pattern, text) for pattern in made for text in chosen.sample(TEXTS, 4)]
    return [(pattern, text) for pattern in PARTS for text in TEXTS] + some


def said_by_re2j(compared: Sequence[tuple[str, str]], directory: Path) -> list[str]:
    lines = "".join(f"{pattern}\t{text}\n" for pattern, text in compared)
    command = java_command("java", directory, "PatternCalls")
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=TIMEOUT_S, check=True)
    return done.stdout.decode().splitlines()


def said_here(pattern: str, text: str) -> str:
    try:
        return str(Pattern(pattern).matches(text)).lower()
    except InvalidPattern:
        return "error"


def test_patterns_match_what_re2j_matches(tmp_path: Path) -> None:
    reason = why_no_java_client()
    if reason is not None:
        pytest.skip(reason)
    compared = cases()
    expected = said_by_re2j(compared, tmp_path)
    assert {"true", "false", "error"} == set(expected)
    different = [
        f"{pattern!r} {text!r}: {said}, here {here}"
        for (pattern, text), said in zip(compared, expected, strict=True)
        if (here := said_here(pattern, text)) != said
    ]
    assert not different
