"""What a draft that is handed over says of those before it, and what that costs."""

from collections.abc import Hashable, Sequence

from gateway.produce.accumulator import PendingBatch
from gateway.produce.drafts import Draft, HandedOver
from gateway.produce.sequence_gaps import SequenceGaps
from ledger.batch.header import BatchHeader
from ledger.partitions.producers import MAX_SEQUENCE
from ledger.partitions.state import PartitionLog
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id

PRODUCERS = 10


class CountedLookups(int):
    """An id of which it is counted how often a mapping looks for it."""

    lookups = 0

    def __hash__(self) -> int:
        CountedLookups.lookups += 1
        return super().__hash__()


def batch(sequence: int, producer: int = 7, partition: int = 0) -> PendingBatch:
    log = PartitionLog(CountedLookups(partition), topic_id(1), partition)
    header = BatchHeader(0, 61, 0, 2, 0, 0, 0, 0, 0, CountedLookups(producer), 0, sequence, 1)
    return PendingBatch(log, header, b"", AwaitedProduce())


def key(producer: int = 7, partition: int = 0) -> Hashable:
    return (topic_id(1), partition, producer, 0)


def draft(number: int, *batches: PendingBatch) -> Draft:
    return Draft(number, list(batches))


async def lookups_of_the_last_of(drafts: int) -> int:
    """Every draft has a batch of every producer."""
    handed_over = HandedOver(SequenceGaps())
    all_drafts = [draft(n, *(batch(n, producer) for producer in range(PRODUCERS))) for n in range(drafts)]
    for earlier in all_drafts[:-1]:
        handed_over.add(earlier)
    all_drafts[-1].first_sequences()
    CountedLookups.lookups = 0
    handed_over.add(all_drafts[-1])
    return CountedLookups.lookups


async def test_a_draft_costs_the_same_however_many_are_under_way() -> None:
    assert await lookups_of_the_last_of(3) == await lookups_of_the_last_of(65)


async def test_a_draft_names_the_lowest_sequence_of_those_under_way() -> None:
    handed_over = HandedOver(SequenceGaps())
    assert handed_over.add(draft(1, batch(5), batch(6))) is None
    assert handed_over.add(draft(2, batch(0, producer=8))) is None
    assert handed_over.add(draft(3, batch(7))) == {key(): 5}
    assert handed_over.add(draft(4, batch(3))) == {key(): 5}
    assert handed_over.add(draft(5, batch(8), batch(1, producer=8))) == {key(): 3, key(8): 0}


async def test_sequences_that_wrap_around_come_later() -> None:
    handed_over = HandedOver(SequenceGaps())
    handed_over.add(draft(1, batch(MAX_SEQUENCE)))
    assert handed_over.add(draft(2, batch(0))) == {key(): MAX_SEQUENCE}
    assert handed_over.add(draft(3, batch(1))) == {key(): MAX_SEQUENCE}


async def test_a_draft_names_a_gap_that_is_lower_than_what_is_under_way() -> None:
    gaps = SequenceGaps()
    gaps.note(batch(4))
    gaps.note(batch(9, producer=8))
    handed_over = HandedOver(gaps)
    assert handed_over.add(draft(1, batch(5))) == {key(): 4}
    assert handed_over.add(draft(2, batch(6), batch(3, producer=8))) == {key(): 4, key(8): 9}
    assert handed_over.add(draft(3, batch(10, producer=8))) == {key(8): 3}


async def test_drafts_with_their_results_are_not_named() -> None:
    handed_over = HandedOver(SequenceGaps())
    first, second = draft(1, batch(5)), draft(2, batch(6))
    handed_over.add(first)
    handed_over.add(second)
    handed_over.remove(first)
    handed_over.remove(second)
    handed_over.remove(second)
    assert handed_over.add(draft(3, batch(7))) is None


async def test_a_draft_that_is_handed_over_again_counts_once() -> None:
    handed_over = HandedOver(SequenceGaps())
    first, second = draft(1, batch(5), batch(0, partition=1)), draft(2, batch(6))
    handed_over.add(first)
    handed_over.add(second)
    first.batches = first.batches[1:]
    assert handed_over.add(first) == {key(): 5}
    handed_over.remove(first)
    handed_over.remove(second)
    assert handed_over.add(draft(3, batch(7), batch(1, partition=1))) is None


async def test_a_draft_that_is_handed_over_again_shares_nothing_with_itself() -> None:
    handed_over = HandedOver(SequenceGaps())
    alone = draft(1, batch(5), batch(6))
    assert handed_over.add(alone) is None
    assert handed_over.add(alone) is None


def overtaken(handed_over: HandedOver, one: Draft, partitions: Sequence[int] = (0, 1, 2)) -> list[int]:
    return [partition for partition in partitions if handed_over.has_overtaken(one, partition)]


async def test_a_draft_is_overtaken_in_the_partitions_of_later_drafts_also_of_those_with_results() -> None:
    handed_over = HandedOver(SequenceGaps())
    first = draft(1, batch(5), batch(5, partition=1))
    second, third = draft(2, batch(6)), draft(3, batch(0, partition=2))
    for each in (first, second, third):
        handed_over.add(each)
    assert overtaken(handed_over, first) == [0, 2]
    handed_over.remove(second)
    handed_over.remove(third)
    assert overtaken(handed_over, first, (0, 1)) == [0]
    handed_over.remove(first)
    assert not overtaken(handed_over, draft(4))
