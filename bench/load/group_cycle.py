"""A group forms, loses a member and ends, again and again.

Spec: host, port, members, cycles (as many before they count).
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from bench.load.club import Club, lines
from bench.load.phases import run_phases


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cycles = spec["cycles"]
    with asyncio.Runner() as runner:
        opened = runner.run(lines(spec["host"], spec["port"], spec["members"]))
        prefix = f"cycle-{time.monotonic_ns()}"
        clubs = [Club(f"{prefix}-{number}", opened) for number in range(2 * cycles)]
        runner.run(clubs[0].await_coordinator())
        for club in clubs[:cycles]:
            runner.run(_cycle(club))
        yield {}
        took = [runner.run(_cycle(club)) for club in clubs[cycles:]]
        yield {
            "join_ms": [1e3 * join_s for join_s, _ in took],
            "rebalance_ms": [1e3 * rebalance_s for _, rebalance_s in took],
        }


async def _cycle(club: Club) -> tuple[float, float]:
    took = await club.form(), await club.lose_one()
    await club.end()
    return took


if __name__ == "__main__":
    run_phases(phases)
