"""Transcripts: text files of blocks, each with commands, a line of dashes, and their outcome.

    # Comments stay as they are.
    a joins
    wait 3 s
    ----
    3.000 s  a is in generation 1

Blocks are separated by an empty line. `pytest --renew-transcripts` writes the present outcomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RULE: Final = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """Commands and their outcome; a block of comments has neither."""

    comments: tuple[str, ...]
    commands: tuple[str, ...]
    outcome: tuple[str, ...]

    def with_outcome(self, outcome: Sequence[str]) -> "Block":
        return Block(self.comments, self.commands, tuple(outcome))


def read_transcript(text: str) -> list[Block]:
    """Errors: ValueError for a block that has no line of dashes."""
    blocks = []
    for part in text.strip("\n").split("\n\n"):
        lines = part.split("\n")
        comments = tuple(line for line in lines if line.startswith("#"))
        rest = [line for line in lines if not line.startswith("#")]
        if rest and RULE not in rest:
            raise ValueError(f"a block without a line of dashes: {rest[0]!r}")
        at = rest.index(RULE) if rest else 0
        blocks.append(Block(comments, tuple(rest[:at]), tuple(rest[at + 1 :])))
    return blocks


def write_transcript(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_write(block) for block in blocks) + "\n"


def _write(block: Block) -> str:
    lines = [*block.comments, *block.commands]
    if block.commands:
        lines += [RULE, *block.outcome]
    return "\n".join(lines)
