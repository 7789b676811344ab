"""Transcripts that Apache Kafka and a gateway play, and where a gateway plays them otherwise.

Next to the stories of Kafka, `here/` has by their names the blocks with another outcome, each with its
reason.
"""

from pathlib import Path

from tests.support.transcript import read_transcript, write_transcript


def expected_here(path: Path) -> str:
    """What a gateway does, of the story of Kafka at this path.

    Errors: AssertionError for a block without a reason, one that is not in the story of Kafka, or is there
    with the same outcome.
    """
    blocks = read_transcript(path.read_text())
    otherwise = path.parent / "here" / path.name
    if otherwise.exists():
        for own in read_transcript(otherwise.read_text()):
            assert own.comments, f"a difference without a reason: {own.commands}"
            (at,) = [at for at, block in enumerate(blocks) if block.commands == own.commands]
            assert blocks[at].outcome != own.outcome, f"no difference: {own.commands}"
            blocks[at] = blocks[at].with_outcome(own.outcome)
    return write_transcript(blocks)
