"""Regular expressions of clients: what they match, which are refused, and what the worst of them cost."""

import time

import pytest

from gateway.regex import MAX_CHARS, MAX_STEPS, STEPS_A_UNIT, InvalidPattern, Pattern
from tests.support.quiet import as_if_quiet

MATCHED = [
    ("app-.*", "app-1", "xapp-1"),
    ("a|bc", "bc", "abc"),
    ("(?:ab)+?", "abab", "aba"),
    ("[^a-c]", "\n", "b"),
    (".", "日", "\n"),
    (r"\Qa.b\E+", "a.bb", "axb"),
    (r"\QC\C\E", r"C\C", "CC"),
    (r"\p{Lu}\P{Lu}", "Aa", "aA"),
    ("(?i)straße|k", "\u212a", "ss"),
    (r"\é", "é", "e"),
    (r"\\C", r"\C", "C"),
    (r"\Aa$", "a", "a\n"),
    ("a{2}b{1,3}c{2,}", "aabbcc", "aabbc"),
    ("[[:alpha:]]{2}[]x]", "ab]", "a1]"),
    (r"\[a\{2", "[a{2", "a"),
]
REFUSED = [
    *("[", "(", "a)", "a**", "+a", "a{2,1}", "a{1001}", "(?=a)", "(?<=a)", r"\1", r"\Z", r"a\C", r"[\C]"),
    *(
        "(?z)",
        "(?<n>a)(?P<n>b)",
        "\\",
        "a" * (MAX_CHARS + 1),
        "((a{1000}){1000}){1000}",
        "(" * 1_001 + ")" * 1_001,
    ),
]


@pytest.mark.parametrize(("pattern", "matched", "other"), MATCHED, ids=[case[0] for case in MATCHED])
def test_a_pattern_matches_whole_texts(pattern: str, matched: str, other: str) -> None:
    assert Pattern(pattern).matches(matched)
    assert not Pattern(pattern).matches(other)


@pytest.mark.parametrize("pattern", REFUSED, ids=[pattern[:20] for pattern in REFUSED])
def test_what_is_not_of_re2_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.serial
@pytest.mark.parametrize(
    "pattern",
    [
        *(part * (MAX_CHARS // len(part)) for part in ("[", r"\p{", r"\x{", "[[:", "(?<")),
        r"\pL{1000}" * 200,
        "(" * 1_000 + "a{1000}" * 100,
    ],
    ids=lambda pattern: pattern[:12],
)
def test_to_refuse_a_pattern_takes_no_longer_than_to_take_one(pattern: str) -> None:
    took = []
    for _ in range(3):
        began = time.thread_time()
        with pytest.raises(InvalidPattern):
            Pattern(pattern)
        took.append(as_if_quiet(time.thread_time() - began))
    assert min(took) < 0.010


def test_a_pattern_that_would_take_long_for_a_text_is_refused_for_it() -> None:
    pattern = Pattern("(?:.*a){200}")
    assert pattern.units("ab" * 50) < MAX_STEPS // STEPS_A_UNIT
    with pytest.raises(InvalidPattern):
        pattern.units("ab" * 10_000)


@pytest.mark.serial
@pytest.mark.parametrize(
    "pattern", ["(?:.*a){200}", "[ab]*a[ab]{500}", "(?:(?:[ab]{0,30}){30}c?)*", "(x+x+)+y"]
)
def test_no_match_that_is_allowed_holds_the_event_loop(pattern: str) -> None:
    compiled, text = Pattern(pattern), "ab" * 16_000
    while True:
        try:
            compiled.units(text)
            break
        except InvalidPattern:
            text = text[: len(text) * 9 // 10]
    took = []
    for _ in range(3):
        begun = time.thread_time()
        compiled.matches(text)
        took.append(as_if_quiet(time.thread_time() - begun))
    assert min(took) < 0.02
