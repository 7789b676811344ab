"""Invariants 1, 6 and 10: whichever call to a store fails, in whatever way, no acked record is lost.

A script of all that an embedded gateway does to its stores runs once to count the calls, and then once for
each call and each way to fail. Afterwards everything that was answered must be so, and the gateway work.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.errors import StoreUnavailable
from ledger.topics.requests import CreateTopic
from tests.support.embedded import Client, Clock, Embedded
from tests.support.faulty import EVERY_FAULT, READING, Fault, Faults
from tests.support.journalled import topic_id
from tests.support.script import Script, broken_promises

FULL = bool(os.environ.get("DRAGOMAN_TEST_FULL"))
MAX_CASES_A_KIND = 10_000 if FULL else 2
METHODS = {
    "metadata": {"get", "scan", "put", "delete"},
    "segments": {"write", "read", "abandon", "delete", "objects"},
    "blobs": {"put", "get", "list", "delete"},
}


@dataclass(frozen=True, slots=True)
class Case:
    number: int
    method: str
    fault: Fault


def cases_of(calls: Faults, most: int = MAX_CASES_A_KIND) -> list[Case]:
    """Every call with every fault, or some of each kind that lie evenly in the script."""
    kinds: dict[tuple[str, Fault], list[Case]] = {}
    for call in calls.calls:
        method = f"{call.store}.{call.method}"
        for fault in [Fault.ERROR_BEFORE] if call.method in READING else EVERY_FAULT:
            kinds.setdefault((method, fault), []).append(Case(call.number, method, fault))
    chosen: list[Case] = []
    for at, cases in enumerate(kinds.values()):
        count = min(len(cases), most)
        # Begun at another place for each kind, so that together they fall on many calls.
        first = at * 7 % len(cases)
        chosen += [cases[(first + n * len(cases) // count) % len(cases)] for n in range(count)]
    return chosen


async def problems(root: Path, faults: Faults) -> list[str]:
    """Run the script with these faults in a directory of its own, and look what it left."""
    root.mkdir()
    script = Script(root, faults)
    try:
        await script.run()
        await faults.arrive()
        return await broken_promises(root, script.clock, script.promises)
    except AssertionError as error:
        return [f"{error}"]
    finally:
        shutil.rmtree(root)


async def test_no_failing_call_to_a_store_breaks_a_promise(
    scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counting = Faults()
    assert await problems(scratch / "counting", counting) == []
    cases = cases_of(counting)
    broken: list[str] = []
    for case in cases:
        faults = Faults(case.number, case.fault, late_by=1 + case.number % 5)
        found = await problems(scratch / "case", faults)
        (failed,) = faults.failed
        assert f"{failed.store}.{failed.method}" == case.method
        broken += [f"{case}: {problem}" for problem in found]
    with capsys.disabled():
        print(f"\n{len(cases)} failing calls of {len(counting.calls)} in the script")  # noqa: T201
    run = {(case.method, case.fault) for case in cases}
    for store, methods in METHODS.items():
        for method in methods:
            for fault in [Fault.ERROR_BEFORE] if method in READING else EVERY_FAULT:
                assert (f"{store}.{method}", fault) in run
    assert broken == []


@pytest.mark.parametrize("method", ["metadata.get", "metadata.scan", "metadata.put"])
async def test_a_store_out_of_reach_at_start_is_an_error_with_its_reason(scratch: Path, method: str) -> None:
    faults = Faults(1, Fault.ERROR_BEFORE, times=1 << 20, only=[method])
    with pytest.raises(StoreUnavailable, match="fault on purpose"):
        await Embedded(scratch, Clock(), faults).start()
    async with Embedded(scratch, Clock()) as host:  # nothing is left open or locked
        assert host.shard.state.applied == 1


@pytest.mark.parametrize("method", ["metadata.put", "segments.write"])
async def test_while_a_store_is_out_of_reach_produce_fails_retriably_and_nothing_is_kept_in_memory(
    scratch: Path, method: str
) -> None:
    # Puts: the epoch and the topic come before.
    first = 3 if method == "metadata.put" else 1
    faults, client = Faults(first, Fault.ERROR_BEFORE, times=3, only=[method]), Client(5)
    async with Embedded(scratch, Clock(), faults) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        batch = client.batch("t", 0)
        assert [await host.send("t", 0, batch) for _ in range(3)] == [["KAFKA_STORAGE_ERROR"]] * 3
        assert host.log("t").high_watermark == 0 and await host.read("t") == []
        assert await host.send("t", 0, batch) == [0]
        assert [stored.data for stored in await host.read("t")] == [batch]
