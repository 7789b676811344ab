"""JSON on stdout: exactly what was there, and nothing that a terminal would obey."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.cli.fetching import Consumed
from gateway.cli.output import print_json, print_line, printable_json
from gateway.cli.record_output import OutputOptions, printer_for
from ledger.batch.records import Record, RecordHeader
from tests.support.quiet import as_if_quiet

HOSTILE = "\\\x9b31m\u202eorders\u2066\x7f\x1b]0;t\x07\n\u2028\u200b\U000e0041\ud800\\"
"""C1 and C0 controls, bidi overrides, a separator of lines, a tag above the BMP, half a surrogate pair."""
READABLE = "Müşteri-grubu 注文 🚀"


def is_harmless(text: str) -> bool:
    return text.endswith("\n") and text.replace("\n", "").isprintable()


@pytest.mark.parametrize("show", [print_json, print_line])
def test_json_moves_no_cursor_and_says_the_exact_name(
    show: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    value = {HOSTILE: [HOSTILE, READABLE]}
    show(value)
    shown = capsys.readouterr().out
    assert is_harmless(shown) and READABLE in shown
    assert json.loads(shown) == value


def test_every_character_comes_back() -> None:
    every = "".join(map(chr, range(0x110000)))
    text = printable_json(json.dumps(every, ensure_ascii=False))
    # Two escapes next to each other would be read as one character.
    assert text.isprintable() and json.loads(text) == json.loads(json.dumps(every))


def test_records_as_json_move_no_cursor_either() -> None:
    name = HOSTILE.replace("\ud800", "")
    record = Record(0, 0, name.encode(), READABLE.encode(), (RecordHeader("h\x9b", name.encode()),))
    line = printer_for(OutputOptions("json"))(Consumed("t", 0, 7, 1, record)).decode()
    assert is_harmless(line) and READABLE in line
    shown = json.loads(line)
    assert (shown["key"], shown["value"]) == (name, READABLE)
    assert shown["headers"] == [{"name": "h\x9b", "value": name}]


def test_a_large_document_costs_little_more() -> None:
    plain, other = json.dumps("a" * 20_000_000), json.dumps("слово " * 300_000, ensure_ascii=False)
    began = time.thread_time()
    assert printable_json(plain) is plain and printable_json(other) == other
    assert as_if_quiet(time.thread_time() - began) < 1.0
