"""Fetch sessions as a pure machine (KIP-227)."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.fetch.sessions import (
    EVICTED_AT_ONCE,
    MAX_EPOCH,
    MIN_EVICTION_AGE_MS,
    FetchKind,
    FetchSessions,
    SessionPartition,
    next_epoch,
)
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from gateway.wire.primitives import ZERO_UUID

ALICE, MALLORY = "User:alice", "User:mallory"
TOPIC_ID = bytes(range(16))


def sessions_of(slots: int = 10, **bounds: Any) -> FetchSessions:
    ids = iter(range(1, 10_000))
    return FetchSessions(slots, lambda: next(ids), **bounds)


def request_of(
    *indexes: int,
    session: tuple[int, int] = (0, 0),
    forget: Sequence[int] = (),
    offset: int = 0,
    by_id: bool = False,
) -> FetchRequest:
    name, topic_id = ("", TOPIC_ID) if by_id else ("t", ZERO_UUID)
    topics = [FetchTopic(name, topic_id, [FetchPartition(i, -1, offset, -1, -1, 100)]) for i in indexes]
    forgotten = [ForgottenTopic(name, topic_id, list(forget))] if forget else []
    return FetchRequest(0, 1, 100, 0, *session, topics, forgotten)


def fetch(
    sessions: FetchSessions,
    request: FetchRequest,
    *,
    now_ms: int = 0,
    version: int = 12,
    principal: str = ALICE,
    high_watermark: int = 5,
    log_start: int = 0,
    with_records: Sequence[int] = (),
    errors: Sequence[int] = (),
) -> FetchResponse:
    """Begin, give every partition the same response, finish."""
    context = sessions.begin(version, request, principal, now_ms)

    def response_for(partition: SessionPartition) -> FetchPartitionResponse:
        index = partition.request.index
        if index in errors:
            return FetchPartitionResponse(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        records = [b"batch"] if index in with_records else ()
        return FetchPartitionResponse(index, 0, high_watermark, high_watermark, log_start, records=records)

    return sessions.finish(
        context, [(partition, response_for(partition)) for partition in context.partitions], now_ms
    )


def sent(response: FetchResponse) -> list[int]:
    return [partition.index for topic in response.topics for partition in topic.partitions]


def test_a_full_fetch_makes_a_session_and_gets_all_partitions() -> None:
    sessions = sessions_of()
    response = fetch(sessions, request_of(0, 1))
    assert (response.session_id, sent(response)) == (1, [0, 1])


def test_a_sessionless_fetch_makes_no_session() -> None:
    sessions = sessions_of()
    assert fetch(sessions, request_of(0, session=(0, -1))).session_id == 0
    assert len(sessions) == 0


def test_an_incremental_fetch_repeats_nothing_and_leaves_out_partitions_without_news() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0, 1, 2))
    response = fetch(sessions, request_of(session=(1, 1)), with_records=[1])
    assert (response.error_code, response.session_id, sent(response)) == (ErrorCode.NONE, 1, [1])


def test_a_moved_high_watermark_or_log_start_is_news() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    assert sent(fetch(sessions, request_of(session=(1, 1)))) == []
    assert sent(fetch(sessions, request_of(session=(1, 2)), high_watermark=6)) == [0]
    assert sent(fetch(sessions, request_of(session=(1, 3)), high_watermark=6, log_start=1)) == [0]
    assert sent(fetch(sessions, request_of(session=(1, 4)), high_watermark=6, log_start=1)) == []


def test_an_error_is_sent_each_time_and_its_end_is_news() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    assert sent(fetch(sessions, request_of(session=(1, 1)), errors=[0])) == [0]
    assert sent(fetch(sessions, request_of(session=(1, 2)), errors=[0])) == [0]
    assert sent(fetch(sessions, request_of(session=(1, 3)))) == [0]
    assert sent(fetch(sessions, request_of(session=(1, 4)))) == []


def test_a_session_adds_changes_and_forgets_partitions() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0, 1))
    context = sessions.begin(12, request_of(1, 2, session=(1, 1), forget=[0], offset=7), ALICE, 0)
    assert context.kind is FetchKind.INCREMENTAL
    assert [
        (partition.request.index, partition.request.fetch_offset) for partition in context.partitions
    ] == [
        (1, 7),
        (2, 7),
    ]


def test_partitions_that_got_records_move_to_the_end() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0, 1, 2))
    fetch(sessions, request_of(session=(1, 1)), with_records=[0, 1])
    context = sessions.begin(12, request_of(session=(1, 2)), ALICE, 0)
    assert [partition.request.index for partition in context.partitions] == [2, 0, 1]


def test_a_session_without_partitions_is_closed() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    response = fetch(sessions, request_of(session=(1, 1), forget=[0]))
    assert (response.session_id, response.error_code, len(sessions)) == (0, ErrorCode.NONE, 0)


@pytest.mark.parametrize("epoch", [2, 5, -2, MAX_EPOCH])
def test_a_wrong_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    response = fetch(sessions, request_of(session=(1, epoch), forget=[0]))
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert fetch(sessions, request_of(session=(1, 1))).error_code == ErrorCode.NONE


def test_an_unknown_session_is_not_found() -> None:
    response = fetch(sessions_of(), request_of(session=(77, 1)))
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_session_of_another_principal_can_neither_be_used_nor_closed() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    stolen = fetch(sessions, request_of(session=(1, 1)), principal=MALLORY)
    assert stolen.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    fetch(sessions, request_of(0, session=(1, -1)), principal=MALLORY)
    fetch(sessions, request_of(0, session=(1, 0)), principal=MALLORY)
    assert fetch(sessions, request_of(session=(1, 1))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_that_it_names(epoch: int) -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    response = fetch(sessions, request_of(0, session=(1, epoch)))
    assert response.session_id == (2 if epoch == 0 else 0)
    gone = fetch(sessions, request_of(session=(1, 1)))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_a_session_keeps_to_names_or_to_ids(first: int, then: int) -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0, by_id=first >= 13), version=first)
    response = fetch(sessions, request_of(session=(1, 1), by_id=then >= 13), version=then)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_response_that_a_later_request_overtook_is_refused() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    slow = sessions.begin(12, request_of(session=(1, 1)), ALICE, 0)
    fetch(sessions, request_of(session=(1, 2)))
    response = sessions.finish(slow, [], 0)
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1)


def test_a_response_whose_session_was_closed_meanwhile_is_refused() -> None:
    sessions = sessions_of()
    fetch(sessions, request_of(0))
    slow = sessions.begin(12, request_of(session=(1, 1)), ALICE, 0)
    fetch(sessions, request_of(0, session=(1, -1)))
    assert sessions.finish(slow, [], 0).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epochs_wrap_without_zero() -> None:
    assert [next_epoch(epoch) for epoch in (1, MAX_EPOCH - 1, MAX_EPOCH)] == [2, MAX_EPOCH, 1]


def test_a_full_cache_refuses_new_sessions_while_its_sessions_are_young() -> None:
    sessions = sessions_of(slots=2)
    fetch(sessions, request_of(0))
    fetch(sessions, request_of(0))
    assert fetch(sessions, request_of(*range(9)), now_ms=MIN_EVICTION_AGE_MS).session_id == 0
    assert len(sessions) == 2


def test_the_least_recently_used_session_is_evicted_first() -> None:
    sessions = sessions_of(slots=2)
    fetch(sessions, request_of(0))
    fetch(sessions, request_of(0))
    fetch(sessions, request_of(session=(1, 1)), now_ms=1000)
    assert fetch(sessions, request_of(0), now_ms=MIN_EVICTION_AGE_MS + 500).session_id == 3
    assert fetch(sessions, request_of(session=(1, 2)), now_ms=MIN_EVICTION_AGE_MS + 600).error_code == 0
    assert sessions.evictions == 1


def test_a_larger_session_evicts_the_smallest_old_one_but_an_equal_one_does_not() -> None:
    sessions = sessions_of(slots=2)
    fetch(sessions, request_of(0, 1, 2))
    fetch(sessions, request_of(0, 1))
    later = MIN_EVICTION_AGE_MS + 1
    for session_id in (1, 2):
        fetch(sessions, request_of(session=(session_id, 1)), now_ms=later)
    assert fetch(sessions, request_of(0, 1), now_ms=later).session_id == 0
    assert fetch(sessions, request_of(0, 1, 2), now_ms=later).session_id == 3
    assert fetch(sessions, request_of(session=(1, 2)), now_ms=later).error_code == ErrorCode.NONE
    gone = fetch(sessions, request_of(session=(2, 2)), now_ms=later)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_all_sessions_together_hold_a_bounded_number_of_partitions() -> None:
    sessions = sessions_of(max_partitions=5)
    fetch(sessions, request_of(0, 1, 2))
    assert fetch(sessions, request_of(0, 1, 2)).session_id == 0
    grown = fetch(sessions, request_of(*range(10, 16), session=(1, 1)))
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_sessions_of_consumers_that_died_end_when_their_partitions_are_wanted() -> None:
    sessions, later = sessions_of(max_partitions=10), MIN_EVICTION_AGE_MS + 1
    dead = [fetch(sessions, request_of(0, 1, 2)).session_id for _ in range(3)]
    alive = fetch(sessions, request_of(0)).session_id
    assert fetch(sessions, request_of(0), now_ms=later - 1).session_id == 0
    assert fetch(sessions, request_of(session=(alive, 1)), now_ms=later).error_code == ErrorCode.NONE
    # As few as need be, those first that were used the longest ago.
    assert fetch(sessions, request_of(0, 1, 2, 3), now_ms=later).session_id
    assert (sessions.evictions, sessions.partition_count, len(sessions)) == (2, 8, 3)
    for session_id, error in zip(
        dead, [ErrorCode.FETCH_SESSION_ID_NOT_FOUND] * 2 + [ErrorCode.NONE], strict=True
    ):
        assert fetch(sessions, request_of(session=(session_id, 1)), now_ms=later).error_code == error
    assert fetch(sessions, request_of(0, 1, 2), now_ms=later).session_id == 0
    # One that can never fit evicts none.
    assert fetch(sessions, request_of(*range(11)), now_ms=3 * later).session_id == 0
    assert (sessions.evictions, len(sessions)) == (2, 3)


def test_a_session_that_grows_lasts_where_others_can_be_evicted() -> None:
    sessions, later = sessions_of(max_partitions=4), MIN_EVICTION_AGE_MS + 1
    fetch(sessions, request_of(0, 1))
    session_id = fetch(sessions, request_of(0), now_ms=later).session_id
    grown = fetch(sessions, request_of(1, 2, session=(session_id, 1)), now_ms=later)
    assert (grown.error_code, sessions.evictions, sessions.partition_count) == (ErrorCode.NONE, 1, 3)


def test_one_fetch_evicts_few_partitions_and_the_next_one_goes_on() -> None:
    size = EVICTED_AT_ONCE - 1
    sessions, later = sessions_of(max_partitions=4 * size), MIN_EVICTION_AGE_MS + 1
    for _ in range(4):
        assert fetch(sessions, request_of(*range(size))).session_id
    for evictions in (2, 4):
        fetched = fetch(sessions, request_of(*range(4 * size)), now_ms=later)
        assert (sessions.evictions, bool(fetched.session_id)) == (evictions, evictions == 4)


def test_without_slots_there_are_no_sessions() -> None:
    assert fetch(sessions_of(slots=0), request_of(0)).session_id == 0


def test_adjacent_partitions_of_one_topic_are_sent_together() -> None:
    response = fetch(sessions_of(), request_of(0, 1, 2))
    assert len(response.topics) == 1
