"""The members of one group commit offsets, each to a partition of its own with one commit in flight.

Spec: host, port, topic (with a partition a member), members, commits_each.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from bench.load.member import Member
from bench.load.member_group import MemberGroup, lines
from bench.load.phases import run_phases

WARM_COMMITS = 200


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    topic, each = spec["topic"], spec["commits_each"]
    with asyncio.Runner() as runner:
        opened = runner.run(lines(spec["host"], spec["port"], spec["members"]))
        member_group = MemberGroup(f"commits-{time.monotonic_ns()}", opened)
        runner.run(member_group.await_coordinator())
        runner.run(member_group.form())
        runner.run(_commit_all(member_group, topic, 0, WARM_COMMITS))
        yield {}
        started = time.monotonic()
        runner.run(_commit_all(member_group, topic, WARM_COMMITS, WARM_COMMITS + each))
        took_s = time.monotonic() - started
        committed = runner.run(member_group.committed(topic, spec["members"]))
        if committed != [WARM_COMMITS + each] * spec["members"]:
            raise RuntimeError(f"committed offsets are {committed} after {WARM_COMMITS + each} commits each")
        runner.run(member_group.check_stable())
        try:
            yield {"commits": each * spec["members"], "took_s": took_s}
        finally:
            runner.run(member_group.end())


async def _commit_all(member_group: MemberGroup, topic: str, first: int, end: int) -> None:
    commits = (_commit(member, topic, i, first, end) for i, member in enumerate(member_group.members))
    await asyncio.gather(*commits)


async def _commit(member: Member, topic: str, partition: int, first: int, end: int) -> None:
    for offset in range(first, end):
        await member.commit(topic, partition, offset + 1)


if __name__ == "__main__":
    run_phases(phases)
