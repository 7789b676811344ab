"""Offset resets, which are audited: offset commits from outside of a group.

A tool that resets the offsets of an empty group sends neither member nor generation in its commit, as a
consumer without group management does. Such a commit counts as a reset if the group has had members, if it is
the group's first commit, or if an offset goes back.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from gateway.completion import Cancellable, Completion
from gateway.groups.describe import EMPTY
from gateway.requests.audit import UNKNOWN_OUTCOME, audit, in_words
from gateway.requests.context import RequestContext
from gateway.wire.messages.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from gateway.wire.primitives import run_out
from ledger.topics.state import Topic
from ledger.types import TopicId

NO_GENERATION: Final = -1
EVENT: Final = "offsets.reset"

Moves = Mapping[tuple[str, int], tuple[int | None, int]]
"""By topic name and partition: the offset before, if any, and the offset after."""


def offset_moves(context: RequestContext, request: OffsetCommitRequest) -> Moves | None:
    """The moves of a request that is a reset, otherwise None."""
    if request.member_id or request.generation_id_or_member_epoch != NO_GENERATION:
        return None
    return run_out(finding_moves(context, request))


def finding_moves(
    context: RequestContext, request: OffsetCommitRequest
) -> Generator[int, None, Moves | None]:
    """The same in slices: yields the units of work done."""
    if request.member_id or request.generation_id_or_member_epoch != NO_GENERATION:
        return None
    services = context.services
    group = services.groups.listing(request.group_id)
    if group is not None and group.state != EMPTY:
        return None
    offsets = services.group_offsets.of(request.group_id)
    moves: dict[tuple[str, int], tuple[int | None, int]] = {}
    for requested in request.topics:
        yield 1 + len(requested.partitions)
        topic = _topic(context, requested.name, requested.topic_id)
        if topic is None:
            continue
        for part in requested.partitions:
            before = offsets.get((topic.topic_id, part.partition_index))
            offset = None if before is None else before.offset
            moves[topic.name, part.partition_index] = (offset, part.committed_offset)
    had_members = group is not None and bool(group.protocol_type)
    goes_back = any(before is not None and after < before for before, after in moves.values())
    return moves if had_members or not offsets or goes_back else None


class AuditedCompletion:
    """Writes the event when the request is complete. If the client hangs up before, the event has an unknown
    outcome."""

    __slots__ = ("_completion", "_context", "_group_id", "_in_flight", "_is_complete", "_moves")

    def __init__(
        self, context: RequestContext, group_id: str, moves: Moves, completion: Completion[object]
    ) -> None:
        self._context = context
        self._group_id = group_id
        self._moves = moves
        self._completion = completion
        self._is_complete = False
        self._in_flight: Cancellable | None = None

    def watch(self, in_flight: Cancellable | None) -> Cancellable | None:
        """Returns the handle that the connection cancels in place of the request in flight."""
        self._in_flight = in_flight
        return None if in_flight is None else self

    def done(self) -> bool:
        return self._completion.done()

    def set_result(self, response: Any, /) -> None:
        self._is_complete = True
        refused = _refused(self._context, response)
        moves = self._moves
        if refused:
            moves = {place: move for place, move in moves.items() if place not in refused}
        if moves:
            audit(self._context, EVENT, group=self._group_id, offsets=_in_words(moves))
        self._completion.set_result(response)

    def set_exception(self, error: Exception, /) -> None:
        self._is_complete = True
        self._completion.set_exception(error)

    def cancel(self) -> None:
        if self._in_flight is not None:
            self._in_flight.cancel()
        if not self._is_complete and self._moves:
            offsets = _in_words(self._moves)
            audit(self._context, EVENT, UNKNOWN_OUTCOME, group=self._group_id, offsets=offsets)


@contextmanager
def auditing(
    context: RequestContext, group_id: str, moves: Moves
) -> Iterator[Callable[[OffsetCommitResponse], None]]:
    """The same for a request that is awaited: yields a function to be called with the response."""
    audited = AuditedCompletion(context, group_id, moves, _Awaited())
    try:
        yield audited.set_result
    except Exception as error:
        audited.set_exception(error)
        raise
    finally:
        audited.cancel()


class _Awaited:
    """The completion of a request that is awaited."""

    def done(self) -> bool:
        return False

    def set_result(self, response: object, /) -> None:
        """It is returned."""

    def set_exception(self, error: Exception, /) -> None:
        """It is raised."""


def _refused(context: RequestContext, response: OffsetCommitResponse) -> set[tuple[str, int]]:
    """By topic name and partition: usually few or none, whatever the request names."""
    refused = set()
    for result in response.topics:
        indexes = [part.partition_index for part in result.partitions if part.error_code]
        if indexes:
            topic = _topic(context, result.name, result.topic_id)
            name = result.name if topic is None else topic.name
            refused |= {(name, index) for index in indexes}
    return refused


def _topic(context: RequestContext, name: str, topic_id: bytes) -> Topic | None:
    return context.services.topics.get(name or TopicId(topic_id))


def _in_words(moves: Moves) -> str:
    return in_words(moves.items(), _move)


def _move(move: tuple[tuple[str, int], tuple[int | None, int]]) -> str:
    (name, index), (before, after) = move
    return f"{name}-{index}: {'none' if before is None else before} to {after}"
