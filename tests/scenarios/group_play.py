"""Plays a script of members of one group against a real coordinator and a real shard.

Commands, one a line; names of members are free:

    a joins [instance=i] [protocols=range,sticky] [metadata=x] [session=10s] [rebalance=60s] [version=9]
            [type=consumer]     a member without an id requests one first, from version 4 on
    a syncs [b=1,2 ...]         with shares by name it assigns
    a beats                     once;  `a keeps beating` every 3 s, shown when the error changes
    a falls silent              no more heartbeats
    a commits                   whether its commit would be allowed
    a leaves | instance i is removed
    wait 10s
    group                       as DescribeGroups would return it
    the gateway dies | the gateway stops      and comes back over the same store
    the store is away | the store is back
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from adapters.metadata.memory import MemoryMetadata
from adapters.open import open_journal
from gateway.coordination.opening import open_shard
from gateway.coordination.shard import Shard
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.machine import Note
from gateway.groups.messages import Join, JoinResult, LeavingMember, Sync
from gateway.settings import Settings
from ledger.groups.state import Group
from ledger.ports import MetadataStore
from tests.scenarios.stores import AwayStore, away_store
from tests.support.transcript import Block

GROUP: Final = "readers"
BEAT_S: Final = 3.0
LOOP_ITERATIONS: Final = 100
"""Iterations of the event loop until a command counts as done."""
FIRST_VERSION_WITH_IDS, FIRST_VERSION_WITH_SKIPPING = 4, 9


@dataclass(slots=True)
class Player:
    """A client with the state that it received."""

    name: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    last_beat: str = "NONE"
    beating: asyncio.Task[None] | None = None
    waiting: set[asyncio.Task[None]] = field(default_factory=set)

    def hang_up(self) -> bool:
        """Whether one of its requests was waiting."""
        was_waiting = bool(self.waiting)
        for task in self.waiting:
            task.cancel()
        return was_waiting


class Play:
    """One script from beginning to end, on the running loop."""

    def __init__(self, store: MetadataStore | None = None) -> None:
        """By default over memory."""
        self._store: AwayStore = away_store(store or MemoryMetadata())
        self._players: dict[str, Player] = {}
        self._ids = itertools.count(1)
        self._lines: list[str] = []
        self._known: Group | None = None
        self._shard: Shard
        self._coordinator: GroupCoordinator

    async def run(self, blocks: Sequence[Block]) -> list[Block]:
        """The same blocks with their outcome."""
        await self._open()
        played = []
        for block in blocks:
            for command in block.commands:
                await self._do(command)
                await self._settle()
            lines, self._lines = self._lines, []
            played.append(block.with_outcome(lines))
        self._hang_up()
        self._coordinator.close()
        await self._shard.close()
        return played

    async def _open(self) -> None:
        self._shard = await open_shard(open_journal(self._store), None, None, 1, self._clock)
        self._coordinator = GroupCoordinator(
            self._shard, Settings(), lambda: str(next(self._ids)), self._noted
        )
        await self._coordinator.begin_epoch()

    def _clock(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)

    async def _settle(self) -> None:
        for _ in range(LOOP_ITERATIONS):
            await asyncio.sleep(0)

    async def _do(self, command: str) -> None:
        whole: dict[str, Callable[[], Awaitable[None]]] = {
            "group": self._describe,
            "the gateway dies": self._die,
            "the gateway stops": self._stop,
            "the store is away": lambda: self._move_store(away=True),
            "the store is back": lambda: self._move_store(away=False),
        }
        if command in whole:
            await whole[command]()
        elif found := re.fullmatch(r"wait (\d+(?:\.\d+)?)s", command):
            await asyncio.sleep(float(found[1]))
        elif found := re.fullmatch(r"instance (\S+) is removed", command):
            await self._leave("an operator", LeavingMember("", found[1], "removed"))
        else:
            await self._act(command)

    async def _act(self, command: str) -> None:
        name, verb, *words = command.split()
        player = self._players.setdefault(name, Player(name))
        options = dict(word.split("=", 1) for word in words if "=" in word)
        match verb, words:
            case "joins", _:
                self._begin(player, self._join(player, options))
            case "syncs", _:
                self._begin(player, self._sync(player, options))
            case "beats", _:
                await self._beat(player)
            case "keeps", ["beating"]:
                player.beating = asyncio.create_task(self._keep_beating(player))
            case "falls", ["silent"]:
                assert player.beating is not None
                player.beating.cancel()
            case "commits", _:
                error = self._coordinator.check_commit(
                    GROUP, player.member_id, player.instance_id, player.generation
                )
                self._say(f"{name} commits in generation {player.generation}: {error or 'taken'}")
            case "leaves", _:
                await self._leave(name, LeavingMember(player.member_id, player.instance_id, ""))
            case _:
                raise ValueError(f"unknown command: {command}")

    def _begin(self, player: Player, doing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(doing)
        player.waiting.add(task)
        task.add_done_callback(player.waiting.discard)

    async def _join(self, player: Player, options: dict[str, str]) -> None:
        version = int(options.get("version", "9"))
        names = options.get("protocols", "range").split(",")
        metadata = options.get("metadata", "").encode()
        player.instance_id = options.get("instance")
        join = Join(
            player.member_id,
            player.instance_id,
            "",
            player.name,
            "/127.0.0.1",
            _ms(options.get("session", "10s")),
            _ms(options.get("rebalance", "60s")),
            options.get("type", "consumer"),
            tuple((name, metadata) for name in names),
            version >= FIRST_VERSION_WITH_IDS,
            version >= FIRST_VERSION_WITH_SKIPPING,
        )
        result = await self._coordinator.join(GROUP, join, self._deadline())
        self._joined(player, result)
        if result.error == "MEMBER_ID_REQUIRED":
            await self._join(player, options)

    def _joined(self, player: Player, result: JoinResult) -> None:
        if result.error != "NONE":
            known = f" as {result.member_id}" if result.error == "MEMBER_ID_REQUIRED" else ""
            self._say(f"{player.name} does not join: {result.error}{known}")
            if result.error in ("MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID"):
                player.member_id = result.member_id if known else ""
            return
        player.member_id, player.generation = result.member_id, result.generation
        said = [f"{player.name} joins generation {result.generation} as {result.member_id}"]
        said.append(f"by {result.protocol}, {result.leader} leads")
        if result.members:
            said.append("of " + " and ".join(member.member_id for member in result.members))
        if result.skip_assignment:
            said.append("it need not assign")
        self._say(", ".join(said))

    async def _sync(self, player: Player, options: dict[str, str]) -> None:
        shares = {self._players[name].member_id: share.encode() for name, share in options.items()}
        sync = Sync(player.member_id, player.instance_id, player.generation, None, None, shares)
        result = await self._coordinator.sync(GROUP, sync, self._deadline())
        said = f"gets [{result.assignment.decode()}]" if result.error == "NONE" else result.error
        self._say(f"{player.name} syncs: {said}")

    async def _beat(self, player: Player, *, only_news: bool = False) -> None:
        error = await self._coordinator.heartbeat(
            GROUP, player.member_id, player.instance_id, player.generation, self._deadline()
        )
        if not only_news or error != player.last_beat:
            self._say(f"{player.name} beats: {error}")
        player.last_beat = error

    async def _keep_beating(self, player: Player) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._beat(player, only_news=True)

    async def _leave(self, name: str, leaving: LeavingMember) -> None:
        errors = await self._coordinator.leave(GROUP, [leaving], self._deadline())
        event = f"{name} leaves" if leaving.member_id else f"{name} removes instance {leaving.instance_id}"
        self._say(f"{event}: {errors if isinstance(errors, str) else errors[0]}")

    async def _describe(self) -> None:
        group = self._coordinator.describe(GROUP)
        if group is None:
            self._say("there is no such group")
            return
        self._say(f"the group is {group.state}" + (f" by {group.protocol}" if group.protocol else ""))
        for member in group.members:
            instance = f" ({member.instance_id})" if member.instance_id else ""
            self._say(f"  {member.member_id}{instance} has [{member.assignment.decode()}]")

    async def _die(self) -> None:
        self._say("the gateway dies")
        self._hang_up()
        await self._settle()
        self._coordinator.close()
        await self._shard.close()
        await self._open()
        self._say("the gateway is back")

    async def _stop(self) -> None:
        self._say("the gateway stops")
        self._coordinator.close()
        await self._settle()
        await self._shard.close()
        await self._open()
        self._say("the gateway is back")

    def _hang_up(self) -> None:
        for player in self._players.values():
            if player.hang_up():
                self._say(f"{player.name} loses its connection")

    async def _move_store(self, *, away: bool) -> None:
        self._store.is_away = away
        self._say("the store is away" if away else "the store is back")

    def _noted(self, group_id: str, note: Note) -> None:
        words = [note.event.replace("_", " "), note.member_id, f"({note.reason})" if note.reason else ""]
        self._say("  group: " + " ".join(filter(None, words)))

    def _say(self, line: str) -> None:
        # What has become durable is shown first: nothing may be completed before.
        stored = self._shard.state.groups.by_id.get(GROUP)
        if stored is not None and stored != self._known:
            self._known = stored
            members = ", ".join(member.member_id for member in stored.members) or "nobody"
            assigned = " with assignments" if stored.synced and stored.members else ""
            self._write(f"  journal: generation {stored.generation} of {members}{assigned}")
        self._write(line)

    def _write(self, line: str) -> None:
        now = asyncio.get_running_loop().time()
        self._lines.append(f"{now:8.3f}s  {line}")

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + 5.0


def _ms(text: str) -> int:
    return int(float(text.removesuffix("s")) * 1000)
