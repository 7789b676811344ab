"""Resets of a group's offsets: a preview first, then exactly what it showed.

A preview is kept under a random id for a few minutes. It is applied only while the group has no members and
its offsets are those that the preview showed: what was confirmed is what is done.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from gateway.console.messages import NotReadable
from gateway.fetch.list_offsets import EARLIEST, LATEST, OffsetQuery
from gateway.groups.describe import EMPTY
from gateway.groups.offset_manager import Committer
from gateway.host import RandomBytes
from gateway.requests.audit import UNKNOWN_OUTCOME, in_words
from gateway.requests.context import Services
from gateway.wire.errors import ErrorCode
from ledger.errors import ErrorName
from ledger.groups.state import OffsetRow
from ledger.topics.state import Topic

log = structlog.get_logger()

CLIENT_ID: Final = "console"
MAX_PREVIEWS: Final = 32
MAX_ROWS: Final = 1_000
"""Partitions of one reset."""
KEPT_S: Final = 300.0
ID_BYTES: Final = 16
RESET_S: Final = 30.0
LIST_OFFSETS_VERSION: Final = 7


class NotPossible(Exception):
    """The reset is refused; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """`to` is earliest, latest, time (Unix ms), offset, or shift (by `value`, which may be negative)."""

    to: str
    value: int = 0


class ResetRow(NamedTuple):
    topic: Topic
    partition: int
    before: int | None
    after: int
    end: int
    """The high watermark at the time of the preview."""


@dataclass(frozen=True, slots=True)
class Preview:
    preview_id: str
    group_id: str
    rows: Sequence[ResetRow]
    expires_at: float
    """Loop time."""


TARGETS: Final = frozenset({"earliest", "latest", "time", "offset", "shift"})


def audit_reset(preview: Preview, errors: Sequence[ErrorName], by: tuple[str, str]) -> None:
    """Write the event that a reset by a client has, too. `by`: principal and address. Partitions whose
    outcome is unknown have an event of their own."""
    for error, outcome in ((ErrorName.NONE, {}), (UNKNOWN_OUTCOME.error, {"outcome": "unknown"})):
        rows = [row for row, found in zip(preview.rows, errors, strict=True) if found == error]
        if rows:
            moves = in_words(rows, _move)
            who = {"principal": by[0], "client_id": CLIENT_ID, "peer": by[1]}
            log.info("offsets.reset", group=preview.group_id, offsets=moves, **outcome, **who)


def _move(row: ResetRow) -> str:
    before = "none" if row.before is None else row.before
    return f"{row.topic.name}-{row.partition}: {before} to {row.after}"


class Resets:
    """The previews that were shown, and what makes them true."""

    def __init__(self, services: Services, random: RandomBytes) -> None:
        self._services = services
        self._random = random
        self._previews: OrderedDict[str, Preview] = OrderedDict()

    async def preview(self, group_id: str, topics: Sequence[str], target: Target) -> Preview:
        """What a reset would do: for all partitions of these topics, or without topics for all partitions of
        which the group has an offset. Raises NotPossible and NotReadable."""
        self._check_group(group_id)
        partitions = self._partitions(group_id, topics)
        if not partitions:
            raise NotPossible("The group has no offsets: name a topic.")
        if len(partitions) > MAX_ROWS:
            raise NotPossible(f"{len(partitions)} partitions; one reset takes at most {MAX_ROWS}.")
        befores = [self._committed(group_id, topic, index) for topic, index in partitions]
        afters = await self._targets(partitions, befores, target)
        rows = [
            ResetRow(topic, index, before, after, topic.partitions[index].high_watermark)
            for (topic, index), before, after in zip(partitions, befores, afters, strict=True)
            if after is not None
        ]
        expires_at = asyncio.get_running_loop().time() + KEPT_S
        preview = Preview(self._random(ID_BYTES).hex(), group_id, rows, expires_at)
        self._previews[preview.preview_id] = preview
        if len(self._previews) > MAX_PREVIEWS:
            self._previews.popitem(last=False)
        return preview

    async def apply(self, preview_id: str) -> tuple[Preview, list[ErrorName]]:
        """Commit a preview, once. Returns the error of each row, in order. Raises NotPossible."""
        preview = self._previews.pop(preview_id, None)
        loop = asyncio.get_running_loop()
        if preview is None or preview.expires_at < loop.time():
            raise NotPossible("There is no such preview any more: make a new one.")
        self._check_group(preview.group_id)
        for row in preview.rows:
            if self._services.shard.state.topics.by_id.get(row.topic.topic_id) is None:
                raise NotPossible(
                    f"The topic {row.topic.name} was deleted since the preview: make a new one."
                )
            if self._committed(preview.group_id, row.topic, row.partition) != row.before:
                raise NotPossible("The offsets of the group have changed since the preview: make a new one.")
        rows = [OffsetRow(row.topic.topic_id, row.partition, row.after) for row in preview.rows]
        # The coordinator checks again that the group has no members, in one step with the commit.
        manager = self._services.group_offsets
        errors = await manager.commit(Committer(preview.group_id), rows, loop.time() + RESET_S)
        return preview, errors

    def _check_group(self, group_id: str) -> None:
        group = self._services.groups.listing(group_id)
        if group is None:
            raise NotPossible("There is no such group.")
        if group.state != EMPTY:
            raise NotPossible(f"The group is {group.state}: stop its consumers first.")

    def _partitions(self, group_id: str, topics: Sequence[str]) -> list[tuple[Topic, int]]:
        found = self._services.shard.state.topics
        if topics:
            named = [found.by_name.get(name) for name in dict.fromkeys(topics)]
            if None in named:
                raise NotPossible("There is no such topic.")
            chosen = [topic for topic in named if topic is not None]
            if sum(len(topic.partitions) for topic in chosen) > MAX_ROWS:
                raise NotPossible(f"One reset takes at most {MAX_ROWS} partitions.")
            return [(topic, index) for topic in chosen for index in range(len(topic.partitions))]
        offsets = self._services.group_offsets.of(group_id)
        if len(offsets) > MAX_ROWS:
            raise NotPossible(f"{len(offsets)} offsets; one reset takes at most {MAX_ROWS}: name a topic.")
        live = [(found.by_id.get(topic_id), index) for topic_id, index in offsets]
        known = [(topic, i) for topic, i in live if topic is not None and i < len(topic.partitions)]
        return sorted(known, key=lambda one: (one[0].name, one[1]))

    def _committed(self, group_id: str, topic: Topic, index: int) -> int | None:
        committed = self._services.group_offsets.of(group_id).get((topic.topic_id, index))
        return None if committed is None else committed.offset

    async def _targets(
        self, partitions: Sequence[tuple[Topic, int]], befores: Sequence[int | None], target: Target
    ) -> list[int | None]:
        """The new offsets, within what each partition has. None: nothing to shift."""
        if target.to in ("earliest", "latest", "time"):
            return list(await self._listed(partitions, target))
        afters: list[int | None] = []
        for (topic, index), before in zip(partitions, befores, strict=True):
            log = topic.partitions[index]
            if target.to == "shift" and before is None:
                afters.append(None)
                continue
            wanted = (before or 0) + target.value if target.to == "shift" else target.value
            afters.append(min(max(wanted, log.log_start), log.high_watermark))
        return afters

    async def _listed(self, partitions: Sequence[tuple[Topic, int]], target: Target) -> list[int]:
        stamp = {"earliest": EARLIEST, "latest": LATEST}.get(target.to, target.value)
        queries = [OffsetQuery(topic.name, index, stamp) for topic, index in partitions]
        deadline = asyncio.get_running_loop().time() + RESET_S
        results = await self._services.offsets.list_offsets(LIST_OFFSETS_VERSION, queries, 0, deadline)
        found: list[int] = []
        for (topic, index), result in zip(partitions, results, strict=True):
            if result.error is not ErrorCode.NONE:
                raise NotReadable(f"{topic.name} {index}: {result.error.name}")
            # No record is as late: the group goes on at the end.
            found.append(result.offset if result.offset >= 0 else topic.partitions[index].high_watermark)
        return found
