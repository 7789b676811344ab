"""Offsets that are set from outside a group: noticed, so that they leave a trace.

A tool that resets the offsets of an empty group sends what a consumer without a group sends at each commit:
neither member nor generation. It counts as a reset if the group has had members, or if it is the group's
first commit, or if an offset goes back.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from gateway.context import Cancellable, MessageReply, RequestContext
from gateway.groups.states import State
from gateway.handlers.auditing import UNKNOWN_OUTCOME, audit, in_words
from gateway.wire.messages.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from gateway.wire.primitives import run_out
from ledger.topics import Topic
from ledger.types import TopicId

NO_GENERATION: Final = -1
EVENT: Final = "offsets.reset"

Moves = Mapping[tuple[str, int], tuple[int | None, int]]
"""Offset before, if any, and after, by topic name and partition."""


def noticed(context: RequestContext, request: OffsetCommitRequest) -> Moves | None:
    """What the request would change, if it is a reset."""
    if request.member_id or request.generation_id_or_member_epoch != NO_GENERATION:
        return None
    return run_out(noticing(context, request))


def noticing(context: RequestContext, request: OffsetCommitRequest) -> Generator[int, None, Moves | None]:
    """The same in slices: yields the units of weight worked off."""
    if request.member_id or request.generation_id_or_member_epoch != NO_GENERATION:
        return None
    services = context.services
    group = services.groups.outline(request.group_id)
    if group is not None and group.state != State.EMPTY.value:
        return None
    held = services.group_offsets.of(request.group_id)
    moves: dict[tuple[str, int], tuple[int | None, int]] = {}
    for asked in request.topics:
        yield 1 + len(asked.partitions)
        topic = _topic(context, asked.name, asked.topic_id)
        if topic is None:
            continue
        for part in asked.partitions:
            before = held.get((topic.topic_id, part.partition_index))
            offset = None if before is None else before.offset
            moves[topic.name, part.partition_index] = (offset, part.committed_offset)
    had_members = group is not None and bool(group.protocol_type)
    goes_back = any(before is not None and after < before for before, after in moves.values())
    return moves if had_members or not held or goes_back else None


class AuditedReply:
    """Writes the event when the request is answered, or the client hangs up; then the outcome is unknown."""

    __slots__ = ("_answered", "_context", "_group_id", "_moves", "_reply", "_under_way")

    def __init__(self, context: RequestContext, group_id: str, moves: Moves, reply: MessageReply) -> None:
        self._context = context
        self._group_id = group_id
        self._moves = moves
        self._reply = reply
        self._answered = False
        self._under_way: Cancellable | None = None

    def watch(self, under_way: Cancellable | None) -> Cancellable | None:
        """What the connection holds instead of the request that is under way."""
        self._under_way = under_way
        return None if under_way is None else self

    def answer(self, response: Any) -> None:
        self._answered = True
        refused = _refused(self._context, response)
        moves = self._moves
        if refused:
            moves = {place: move for place, move in moves.items() if place not in refused}
        if moves:
            audit(self._context, EVENT, group=self._group_id, offsets=_in_words(moves))
        self._reply.answer(response)

    def fail(self, error: Exception) -> None:
        self._answered = True
        self._reply.fail(error)

    def cancel(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
        if not self._answered and self._moves:
            offsets = _in_words(self._moves)
            audit(self._context, EVENT, UNKNOWN_OUTCOME, group=self._group_id, offsets=offsets)


@contextmanager
def auditing(
    context: RequestContext, group_id: str, moves: Moves
) -> Iterator[Callable[[OffsetCommitResponse], None]]:
    """The same where the request is awaited: what is yielded takes the response."""
    audited = AuditedReply(context, group_id, moves, _Nobody())
    try:
        yield audited.answer
    except Exception as error:
        audited.fail(error)
        raise
    finally:
        audited.cancel()


class _Nobody:
    """The reply where the response is returned."""

    def answer(self, response: object) -> None:
        """It is returned."""

    def fail(self, error: Exception) -> None:
        """It is raised."""


def _refused(context: RequestContext, response: OffsetCommitResponse) -> set[tuple[str, int]]:
    """By topic name and partition: few or none as a rule, however many the request names."""
    refused = set()
    for answered in response.topics:
        indexes = [part.partition_index for part in answered.partitions if part.error_code]
        if indexes:
            topic = _topic(context, answered.name, answered.topic_id)
            name = answered.name if topic is None else topic.name
            refused |= {(name, index) for index in indexes}
    return refused


def _topic(context: RequestContext, name: str, topic_id: bytes) -> Topic | None:
    return context.services.topics.get(name or TopicId(topic_id))


def _in_words(moves: Moves) -> str:
    return in_words(moves.items(), _move)


def _move(move: tuple[tuple[str, int], tuple[int | None, int]]) -> str:
    (name, index), (before, after) = move
    return f"{name}-{index}: {'none' if before is None else before} to {after}"
