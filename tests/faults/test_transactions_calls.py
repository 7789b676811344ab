"""Invariant 5 under transactions: whichever call to a store fails, in whatever way, a transaction is whole or
unseen. A result may be lost, or an effect come late; the producers repeat their requests, as clients do."""

import shutil
from pathlib import Path

import pytest

from tests.faults.recovered_transactions import problems_of_shard
from tests.faults.test_invariant_10_calls import FULL, cases_of
from tests.support.embedded import Embedded
from tests.support.faulty import Fault, Faults
from tests.support.transactional_history import Outcome
from tests.support.transactional_script import NAMES, TOPIC, TransactionalScript

TRANSACTIONS = 8
MAX_CASES_A_KIND = 10_000 if FULL else 4


async def problems(root: Path, faults: Faults, *, exclusive: bool) -> list[str]:
    """Run the script with these faults in a directory of its own, and look what it left."""
    root.mkdir()
    script = TransactionalScript(root, faults, exclusive=exclusive)
    try:
        await script.run()
        await faults.arrive()
        async with Embedded(root, script.clock) as host:
            found = await problems_of_shard(host.shard, host.segments, script.history, TOPIC, NAMES)
        committed = [each for each in script.history.attempts if each.outcome is Outcome.COMMITTED]
        return [*found, *([] if len(committed) == TRANSACTIONS else [f"{len(committed)} were committed"])]
    except AssertionError as error:
        return [f"{error!r}"]
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
async def test_no_failing_call_to_a_store_tears_a_transaction(
    scratch: Path, capsys: pytest.CaptureFixture[str], exclusive: bool
) -> None:
    counting = Faults()
    assert await problems(scratch / "counting", counting, exclusive=exclusive) == []
    cases = cases_of(counting, MAX_CASES_A_KIND)
    broken: list[str] = []
    for case in cases:
        faults = Faults(case.number, case.fault, late_by=1 + case.number % 5)
        found = await problems(scratch / "case", faults, exclusive=exclusive)
        assert len(faults.failed) == 1
        broken += [f"{case}: {problem}" for problem in found]
    with capsys.disabled():
        print(f"\n{len(cases)} failing calls of {len(counting.calls)} in the script")  # noqa: T201
    assert {(case.method, case.fault) for case in cases} >= {("metadata.put", fault) for fault in Fault}
    assert broken == []
