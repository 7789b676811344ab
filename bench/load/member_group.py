"""One group whose members live in this process: it forms, loses a member, ends, and is checked each time."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.load.member import Line, Member, check, connected
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.delete_groups import DeleteGroupsRequest
from gateway.wire.messages.generated.describe_groups import DescribedGroup, DescribeGroupsRequest
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

FORM_TIMEOUT_S = 60.0
BEAT_S = 0.02
"""While a group forms, its early members send heartbeats this often: what is measured is the
server's work, and not the 3 s that a member of an application may take to notice."""
COORDINATOR_TIMEOUT_S = 60.0
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


async def lines(host: str, port: int, count: int) -> list[Line]:
    """Connections, one opened after the other. Errors: OSError."""
    return [await connected(host, port) for _ in range(count)]


@dataclass(slots=True)
class MemberGroup:
    """A group of one member a connection."""

    group: str
    lines: Sequence[Line]
    members: list[Member] = field(default_factory=list)

    async def form(self) -> float:
        """Seconds until all are members of one generation that every one has synced.

        Errors: RuntimeError when the server describes another group than that; TimeoutError.
        """
        self.members = [Member(line, self.group) for line in self.lines]
        return await self._settle(self.members)

    async def lose_one(self) -> float:
        """Seconds from a member's leaving to the next generation of the rest, whose heartbeats are
        immediate."""
        started = time.monotonic()
        await self.members.pop().leave()
        still_hold = await asyncio.gather(*(member.beat() for member in self.members))
        if any(still_hold):
            raise RuntimeError(f"{sum(still_hold)} members did not learn that one has left")
        return time.monotonic() - started + await self._settle(self.members)

    async def end(self) -> None:
        """All leave, and nothing of the group stays."""
        leaving = [MemberIdentity(member.member_id) for member in self.members]
        left = await self.lines[0].ask(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(self.group, members=leaving))
        for code in (left.error_code, *(member.error_code for member in left.members)):
            check(code)
        self.members = []
        response = await self.lines[0].ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest([self.group]))
        check(response.results[0].error_code)

    async def await_coordinator(self) -> None:
        """Wait until the server is the group's coordinator. Errors: TimeoutError."""
        async with asyncio.timeout(COORDINATOR_TIMEOUT_S):
            while True:
                request = FindCoordinatorRequest(coordinator_keys=[self.group])
                response = await self.lines[0].ask(ApiKey.FIND_COORDINATOR, 4, request)
                codes = {response.coordinators[0].error_code, (await self._described()).error_code}
                if not codes & set(NOT_YET):
                    return
                await asyncio.sleep(0.1)

    async def check_stable(self) -> None:
        """The server sees these members, stable, each with the share it was given; shares are disjoint.

        Errors: RuntimeError.
        """
        described = await self._described()
        check(described.error_code)
        stored = {member.member_id: bytes(member.member_assignment) for member in described.members}
        held = {member.member_id: member.share for member in self.members}
        disjoint = len(set(held.values())) == len(held) == len(self.members)
        one_generation = len({member.generation for member in self.members}) == 1
        if described.group_state != "Stable" or stored != held or not disjoint or not one_generation:
            raise RuntimeError(f"{self.group} is {described.group_state} with {len(stored)} members")

    async def committed(self, topic: str, partitions: int) -> list[int]:
        topics = [OffsetFetchRequestTopics(topic, partition_indexes=list(range(partitions)))]
        groups = [OffsetFetchRequestGroup(self.group, topics=topics)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)
        (response,) = (await self.lines[0].ask(ApiKey.OFFSET_FETCH, 8, request)).groups
        check(response.error_code)
        found = sorted(response.topics[0].partitions, key=lambda part: part.partition_index)
        return [part.committed_offset for part in found]

    async def _settle(self, members: Sequence[Member]) -> float:
        started = time.monotonic()
        async with asyncio.timeout(FORM_TIMEOUT_S):
            done = asyncio.Event()
            await asyncio.gather(*(_settled(member, len(members), done) for member in members))
        took_s = time.monotonic() - started
        await self.check_stable()
        return took_s

    async def _described(self) -> DescribedGroup:
        response = await self.lines[-1].ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([self.group]))
        found: DescribedGroup = response.groups[0]
        return found


async def _settled(member: Member, wanted: int, done: asyncio.Event) -> None:
    """A member of the generation that has all members. Only the leader's response has them; its SyncGroup
    passes them on."""
    await member.enter()
    while True:
        if member.size == wanted:
            done.set()
        if done.is_set():
            return
        if not await member.beat():
            await member.enter()
        elif not done.is_set():
            await _first_of(done, BEAT_S)


async def _first_of(done: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        return
