"""The stores of a job, for callers that block: each call of the adapters is run to its end."""

import asyncio
from collections.abc import Sequence

from ledger.ports import JobSegments
from ledger.types import Buffer, Position


class BlockingStore:
    """A `pipeline.rounds.JobStore`, with an event loop of its own. For one thread."""

    def __init__(self, segments: JobSegments, runner: asyncio.Runner) -> None:
        self._segments = segments
        self._runner = runner

    def __enter__(self) -> "BlockingStore":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._segments.close())

    def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return self._runner.run(self._segments.read(positions))

    def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        self._runner.run(self._segments.write_segment(locator, buffers, index))

    def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        self._runner.run(self._segments.write_settled(locator, log, index, meta))
