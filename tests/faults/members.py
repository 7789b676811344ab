"""Members in threads, which work through every death of the gateway and record the results."""

import itertools
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.cli.client import ClientError
from tests.support.group_member import LOST, WAIT_S, Member, name_of

RETRY_S: Final = 0.05
TRY_AGAIN: Final = frozenset({LOST, "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})


@dataclass(frozen=True, slots=True)
class Joined:
    """A generation as one member got it."""

    generation: int
    leader: str
    member_id: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Acked:
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Read:
    """What was committed when a member began with a partition."""

    partition: int
    offset: int
    requested_at: float


@dataclass(slots=True)
class Worker:
    """A member in a thread: joins, shares partitions out if it leads, commits offset after offset."""

    member: Member
    partitions: int
    seed: int
    joined: list[Joined] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    leaving: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread = field(init=False)

    def start(self) -> "Worker":
        self.thread = threading.Thread(target=self._run, name=f"worker-{self.seed}", daemon=True)
        self.thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(2 * WAIT_S)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                mine = self._enter()
                if mine is not None:
                    self._work(mine)
        except Exception as error:
            self.failed.append(repr(error))

    def _enter(self) -> frozenset[int] | None:
        """Join and sync; None if that has to be tried again."""
        try:
            joined = self.member.join()
            if name_of(joined) != "NONE":
                self._refused(name_of(joined))
                return None
            leads = joined.leader == self.member.member_id and not joined.skip_assignment
            members = [member.member_id for member in joined.members]
            synced = self.member.sync(self._shares(members) if leads else None)
            if name_of(synced) != "NONE":
                self._refused(name_of(synced))
                return None
            mine = frozenset(synced.assignment)
            self.joined.append(Joined(joined.generation_id, joined.leader, self.member.member_id, mine))
            requested_at = time.monotonic()
            committed = self.member.committed(sorted(mine))
        except ClientError:
            self._refused(LOST)
            return None
        self.reads += [Read(partition, offset, requested_at) for partition, offset in committed.items()]
        return mine

    def _shares(self, members: Sequence[str]) -> dict[str, bytes]:
        """A byte a partition, in turn."""
        shares: dict[str, bytearray] = {member: bytearray() for member in members}
        for partition in range(self.partitions):
            shares[members[partition % len(members)]].append(partition)
        return {member: bytes(share) for member, share in shares.items()}

    def _work(self, mine: frozenset[int]) -> None:
        """Until the membership ends."""
        dice = random.Random(self.seed)
        latest = {read.partition: read.offset for read in self.reads}
        while not self.stopping.is_set():
            if self.leaving.is_set():
                self.leaving.clear()
                self.member.leave()
                self.member.member_id = ""
                return
            partition = dice.choice(sorted(mine)) if mine else None
            if partition is None or dice.random() < 0.5:
                error = self.member.beat()
            else:
                error = self.member.commit(partition, latest[partition] + 1)
                if error == "NONE":
                    latest[partition] += 1
                    self.acked.append(Acked(partition, latest[partition], time.monotonic()))
            if error != "NONE":
                self._refused(error)
                if error not in TRY_AGAIN:
                    return
            time.sleep(RETRY_S)

    def _refused(self, error: str) -> None:
        self.refused.append(error)
        if error in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self.member.member_id = ""
        time.sleep(RETRY_S)


def problems_of_group(workers: Sequence[Worker], memberships_last: bool = True) -> list[str]:
    """What contradicts invariant 9: generations with two leaders or shared partitions, generations or offsets
    that went back, and memberships that were lost, unless the gateway was away for longer than a session.
    Empty = all is well."""
    wrong = [error for worker in workers for error in worker.failed]
    joined = sorted((one for worker in workers for one in worker.joined), key=lambda one: one.generation)
    for generation, same in itertools.groupby(joined, key=lambda one: one.generation):
        members = list(same)
        if len({one.leader for one in members}) != 1:
            wrong.append(f"generation {generation} has two leaders")
        # The same member may have got it twice.
        owned = [p for one in {(one.member_id, one.partitions) for one in members} for p in one[1]]
        if len(owned) != len(set(owned)):
            wrong.append(f"generation {generation} gives a partition to two members")
    for worker in workers:
        generations = [one.generation for one in worker.joined]
        if generations != sorted(generations):
            wrong.append("a generation went back")
        # No member loses its membership by a kill; only a member that leaves has to join again.
        if memberships_last and "ILLEGAL_GENERATION" in worker.refused:
            wrong.append("a member has an unknown generation")
    return wrong + _commits_that_went_back(workers)


def _commits_that_went_back(workers: Sequence[Worker]) -> list[str]:
    acks = [ack for worker in workers for ack in worker.acked]
    wrong = []
    for read in (read for worker in workers for read in worker.reads):
        known = [a.offset for a in acks if a.partition == read.partition and a.at < read.requested_at]
        if read.offset < max(known, default=-1):
            wrong.append(f"partition {read.partition} went back")
    return wrong
