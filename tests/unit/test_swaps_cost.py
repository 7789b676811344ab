"""What swaps cost: no entry is applied for long, and what was merged takes little memory."""

import gc
import time
import tracemalloc

import pytest

from ledger.partitions.requests import CommitFile
from ledger.registry import REGISTRY
from ledger.swaps.requests import MAX_SWAPPED_RUNS, Swapped, TakePin
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.quiet import as_if_quiet
from tests.support.swapping import JOB, swap_of

TOPIC = topic_id(1)


def of_runs(runs: int) -> JournalledLedger:
    """Each in an object of its own, as after flushes to a far store."""
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 1, {}), TakePin(JOB))
    for number in range(runs):
        batch = commit_batch(TOPIC, 0, 0, max_timestamp=number)
        ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [batch]))
    return ledger


@pytest.mark.serial
def test_a_swap_of_two_thousand_runs_is_applied_in_five_milliseconds() -> None:
    """The fastest of some is looked at; the bound is three times as high."""
    took = []
    for _ in range(3):
        ledger = of_runs(MAX_SWAPPED_RUNS)
        log = ledger.state.topics.by_id[TOPIC].partitions[0]
        (decision,) = ledger.decide(swap_of(log, list(log.runs()), ledger.now_ms, join=100)).decisions
        assert isinstance(decision.result, Swapped)
        (record,) = decision.records
        began = time.thread_time()
        REGISTRY.apply(ledger.state, record)
        took.append(as_if_quiet(time.thread_time() - began))
    assert min(took) < 0.015, f"applied in {1000 * min(took):.2f} ms"


@pytest.mark.parametrize("runs", [7, 256])
def test_a_log_that_is_swapped_in_small_parts_takes_64_bytes_a_run(runs: int) -> None:
    """From its end to its beginning, which is the order that leaves the most chunks of few runs."""
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 2, {}), TakePin(JOB))
    batches = [commit_batch(TOPIC, at % 2, at * 100) for at in range(8_000)]
    ledger.submit(CommitFile(locator(1, ledger.now_ms), 100 * len(batches), batches))
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    planned = list(log.runs())
    tracemalloc.start()
    for end in range(len(planned), 0, -runs):
        some = planned[max(end - runs, 0) : end]
        assert isinstance(ledger.submit(swap_of(log, some, ledger.now_ms, join=2))[0], Swapped)
    del planned
    chunks = list(log.chunks)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    copied = [chunk.packed(chunk.head, len(chunk)) for chunk in chunks]
    made = [type(chunk).of_rows(chunk.serial, rows) for chunk, rows in zip(chunks, copied, strict=True)]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    bytes_a_run = (after - before - sum(map(len, copied)) - 33 * len(copied)) / log.run_count
    assert log.run_count < 2_400
    assert bytes_a_run <= 64, f"{len(made)} chunks of {log.run_count} runs"
