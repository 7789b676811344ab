"""What executors of the Spark engine do for settled ledgers: they encode what the driver has found, and write
it. They know nothing of the gateway, and import no pyspark.

Every attempt of a Spark task writes under new keys, so that one which was given up, and goes on all the same,
overwrites nothing.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from adapters.open import FarOptions, FarStores, open_job_segments
from ledger.errors import StoreError
from pipeline.settled_files import FoundPartition, SettledStore, WrittenSettled, write_partition
from pipeline.stores import BlockingStore

Group: TypeAlias = Sequence[tuple[int, FoundPartition]]
"""What one Spark task writes: partitions, each with its place in the wave."""
OpenStore: TypeAlias = Callable[[str, Mapping[str, Any]], AbstractContextManager[SettledStore]]


class Outcome(NamedTuple):
    """What has become of a partition of the wave. `store_error`: why it could not be written."""

    number: int
    written: WrittenSettled
    store_error: str = ""


@contextmanager
def opened(url: str, far: Mapping[str, Any]) -> Iterator[SettledStore]:
    """The store of the gateway, for one Spark task. Errors: StoreError, UnknownStore."""
    with asyncio.Runner() as runner:
        segments = open_job_segments(url, far=FarStores(FarOptions(**far)))
        with BlockingStore(segments, runner) as store:
            yield store


@dataclass(frozen=True, slots=True)
class SettlingExecutor:
    """How to work on a wave: pickled, with every Spark task. `far`: settings `storage.*` of a store elsewhere
    that its URL does not say; `created_ms`: the journal's time, for the keys."""

    data_url: str
    far: Mapping[str, Any]
    created_ms: int
    open_store: OpenStore = opened

    def write(self, groups: Iterable[Group]) -> Iterator[Outcome]:
        for group in groups:
            try:
                with self.open_store(self.data_url, self.far) as store:
                    # Whole, as a store may also fail when it is closed.
                    outcomes = [Outcome(number, self._written(each, store)) for number, each in group]
            except (StoreError, ValueError) as error:
                outcomes = [Outcome(number, WrittenSettled(None), str(error)) for number, _ in group]
            yield from outcomes

    def _written(self, found: FoundPartition, store: SettledStore) -> WrittenSettled:
        return write_partition(found, self.created_ms, os.urandom, store)
