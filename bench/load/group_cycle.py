"""A group forms, loses a member and ends, again and again.

Spec: host, port, members, cycles (as many before they count).
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from bench.load.member_group import MemberGroup, lines
from bench.load.phases import run_phases


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cycles = spec["cycles"]
    with asyncio.Runner() as runner:
        opened = runner.run(lines(spec["host"], spec["port"], spec["members"]))
        prefix = f"cycle-{time.monotonic_ns()}"
        member_groups = [MemberGroup(f"{prefix}-{number}", opened) for number in range(2 * cycles)]
        runner.run(member_groups[0].await_coordinator())
        for member_group in member_groups[:cycles]:
            runner.run(_cycle(member_group))
        yield {}
        took = [runner.run(_cycle(member_group)) for member_group in member_groups[cycles:]]
        yield {
            "join_ms": [1e3 * join_s for join_s, _ in took],
            "rebalance_ms": [1e3 * rebalance_s for _, rebalance_s in took],
        }


async def _cycle(member_group: MemberGroup) -> tuple[float, float]:
    took = await member_group.form(), await member_group.lose_one()
    await member_group.end()
    return took


if __name__ == "__main__":
    run_phases(phases)
