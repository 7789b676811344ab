"""Members of several stable groups that only send heartbeats, spread evenly over the interval.

Spec: host, port, members, group_members (of each group), heartbeat_s, rounds.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.load.member import Member
from bench.load.member_group import MemberGroup, lines
from bench.load.phases import run_phases


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    size = spec["group_members"]
    with asyncio.Runner() as runner:
        opened = runner.run(lines(spec["host"], spec["port"], spec["members"]))
        prefix = f"idle-{time.monotonic_ns()}"
        member_groups = [
            MemberGroup(f"{prefix}-{i}", opened[i : i + size]) for i in range(0, len(opened), size)
        ]
        for member_group in member_groups:
            runner.run(member_group.await_coordinator())
            runner.run(member_group.form())
        members = [member for member_group in member_groups for member in member_group.members]
        yield {}
        heartbeats = runner.run(_beat(members, spec["rounds"], spec["heartbeat_s"]))
        for member_group in member_groups:
            runner.run(member_group.check_stable())
        try:
            yield {"heartbeats": heartbeats}
        finally:
            for member_group in member_groups:
                runner.run(member_group.end())


async def _beat(members: Sequence[Member], rounds: int, interval_s: float) -> int:
    """The number of heartbeats that found their generation as it was. Errors: RuntimeError for any other."""
    started = asyncio.get_running_loop().time()
    pause_s = interval_s / len(members)
    pacers = (_pace(member, rounds, started + i * pause_s, interval_s) for i, member in enumerate(members))
    return sum(await asyncio.gather(*pacers))


async def _pace(member: Member, rounds: int, first: float, interval_s: float) -> int:
    now = asyncio.get_running_loop().time
    for round_ in range(rounds):
        await asyncio.sleep(max(0.0, first + round_ * interval_s - now()))
        if not await member.beat():
            raise RuntimeError(f"{member.group} rebalances although its members are idle")
    return rounds


if __name__ == "__main__":
    run_phases(phases)
