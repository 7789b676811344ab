"""Any fetches over any batches give what a simple model gives, from cache or store, first time or later."""

import asyncio
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.fetch.operation import FetchOptions
from gateway.wire.errors import ErrorCode
from tests.support.reading import batch_of, parts, reading_world, records_of, with_base

PARTITIONS = 3


@dataclass(frozen=True)
class Produced:
    partition: int
    records: int
    value_bytes: int

    @property
    def batch(self) -> bytes:
        return batch_of(*[bytes([i]) * self.value_bytes for i in range(self.records)])


@dataclass(frozen=True)
class Fetched:
    offsets: tuple[int, ...]
    partition_max: tuple[int, ...]
    max_bytes: int
    order: tuple[int, ...]


produced = st.builds(
    Produced,
    st.integers(0, PARTITIONS - 1),
    st.integers(1, 5),
    st.sampled_from([0, 1, 50, 700, 9_000, 70_000]),
)
drafts = st.lists(st.lists(produced, min_size=1, max_size=8), max_size=6)
sizes = st.sampled_from([0, 1, 60, 61, 100, 500, 2_000, 20_000, 80_000, 1_000_000])
fetches = st.builds(
    Fetched,
    st.tuples(*[st.integers(-1, 60)] * PARTITIONS),
    st.tuples(*[sizes] * PARTITIONS),
    sizes,
    st.permutations(range(PARTITIONS)).map(tuple),
)


class Model:
    """Batches of each partition in a list: (base offset, last offset, bytes as served)."""

    def __init__(self) -> None:
        self.logs: list[list[tuple[int, int, bytes]]] = [[] for _ in range(PARTITIONS)]

    def end(self, partition: int) -> int:
        log = self.logs[partition]
        return log[-1][1] + 1 if log else 0

    def append(self, one: Produced) -> None:
        base = self.end(one.partition)
        served = with_base(one.batch, base)
        self.logs[one.partition].append((base, base + one.records - 1, served))

    def fetch(self, fetched: Fetched) -> dict[int, bytes | None]:
        """None for an offset out of range."""
        left, first = fetched.max_bytes, True
        result: dict[int, bytes | None] = {}
        for partition in fetched.order:
            offset = fetched.offsets[partition]
            if not 0 <= offset <= self.end(partition):
                result[partition] = None
                continue
            there = [data for _, last, data in self.logs[partition] if last >= offset]
            limit = min(fetched.partition_max[partition], left)
            taken: list[bytes] = []
            for data in there:
                if sum(map(len, taken)) + len(data) > limit and not (first and not taken):
                    break
                taken.append(data)
            result[partition] = b"".join(taken)
            if taken:
                first = False
                left = max(0, left - max(sum(map(len, taken)), min(limit, sum(map(len, there)))))
        return result


async def check(
    drafts: list[list[Produced]], fetches: list[Fetched], cache_bytes: int, round_bytes: int, warm: bool
) -> None:
    model = Model()
    options = FetchOptions(round_bytes=round_bytes)
    async with reading_world(options, cache_bytes=cache_bytes, produce_to_cache=warm) as world:
        await world.create(partitions=PARTITIONS)
        for draft in drafts:
            await world.produce_many([("t", one.partition, one.batch) for one in draft])
            for one in draft:
                model.append(one)
            # Between the drafts too, so that runs are read before they are complete.
            for fetched in fetches[:2]:
                await compare(world, model, fetched)
        for fetched in fetches:
            await compare(world, model, fetched)
        assert world.alarms == []


async def compare(world, model: Model, fetched: Fetched) -> None:  # type: ignore[no-untyped-def]
    requested = [("t", i, fetched.offsets[i], fetched.partition_max[i]) for i in fetched.order]
    response = await world.fetch(*requested, max_bytes=fetched.max_bytes)
    got = {
        part.index: None if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else records_of(part)
        for part in parts(response)
    }
    assert got == model.fetch(fetched)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    drafts,
    st.lists(fetches, min_size=1, max_size=8),
    st.sampled_from([0, 2_000, 10**8]),
    st.sampled_from([1, 300, 2_000, 10**8]),
    st.booleans(),
)
def test_fetches_return_what_the_model_returns(
    drafts: list[list[Produced]], fetches: list[Fetched], cache_bytes: int, round_bytes: int, warm: bool
) -> None:
    asyncio.run(check(drafts, fetches, cache_bytes, round_bytes, warm))
