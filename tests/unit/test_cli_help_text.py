"""Help texts: sentences are wrapped, examples stay lines."""

import pytest

from gateway.cli.help_text import KEPT_INDENT, help_text


def test_sentences_are_joined_and_examples_stay_lines() -> None:
    text = help_text("\nOne sentence\nof two lines.\n\n    dragoman one\n    dragoman two\n")
    assert text == f"One sentence of two lines.\n\n{KEPT_INDENT}dragoman one\n{KEPT_INDENT}dragoman two"


def test_an_example_that_a_line_end_cuts_in_two_is_refused() -> None:
    with pytest.raises(ValueError, match="examples and sentences"):
        help_text("    dragoman consume --format '%v\n'")
