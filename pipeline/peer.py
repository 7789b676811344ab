"""The client by which a job speaks to a gateway: blocking, with a deadline for every call.

All requests are idempotent, so one whose response was lost, or whose error is retriable, is sent again until
the deadline of its call.
"""

import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

from ledger.adoption.requests import Adopted, Adopting, AdoptRuns, AdoptTopic
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settled.requests import NameSettled
from ledger.swaps.requests import Pinned, Swapped, SwapSegments
from ledger.types import TopicId
from pipeline import adoption_messages, messages, snapshot_messages, swap_messages
from pipeline.links import Link, Unreachable
from pipeline.messages import (
    ZERO_UUID,
    Api,
    DescribedFile,
    Failure,
    FoundOffset,
    FoundRuns,
    JournalPage,
    NewestSettled,
    RunQuery,
    ShardPage,
    TopicDescription,
)
from pipeline.primitives import Garbled, Reader
from pipeline.snapshot_messages import TakenSnapshot

Result = TypeVar("Result")

TIMEOUT_S: Final = 60.0
CLIENT_ID: Final = "dragoman-pipeline"
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
TOPICS_A_PAGE: Final = 1_000
RUNS_A_PAGE: Final = 500
"""The gateway finds and encodes a page in one step, in which it serves no client: 1 ms for 500 runs."""
JOURNAL_BYTES: Final = 1024 * 1024
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
"""Between two attempts."""
GRACE_S: Final = 2.0
"""The connection waits longer than the gateway, which then says itself that there was no time."""
SAME_AGAIN: Final = frozenset({ErrorName.REQUEST_TIMED_OUT, ErrorName.COORDINATOR_NOT_AVAILABLE})
RETRIABLE: Final = SAME_AGAIN | {ErrorName.KAFKA_STORAGE_ERROR}
"""Errors after which a request is sent again; a swap that names what is too old is not one of them."""
_LENGTH: Final = struct.Struct(">i")


class PeerUnavailable(Exception):
    """No response within the deadline; one sentence says why."""


class PeerRefused(Exception):
    """The gateway refuses the request, and would again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.error}: {failure.message}" if failure.message else str(failure.error))
        self.error = failure.error


class PeerClient:
    """One connection to a gateway's internal listener, made at the first request and again when it is lost.
    Where there never was one the first request fails at once. For one thread. Every method raises
    PeerUnavailable, and PeerRefused where its result carries no error."""

    def __init__(self, link: Link, timeout_s: float = TIMEOUT_S) -> None:
        """`timeout_s`: of every call, with its repeats."""
        self._link = link
        self._timeout_s = timeout_s
        self._sock: socket.socket | None = None
        self._was_connected = False
        self._data_url = ""
        """Where the gateway had its records when it was asked first."""
        self._correlation_id = 0

    def __enter__(self) -> "PeerClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def describe(self, after: bytes = ZERO_UUID, max_topics: int = 0) -> ShardPage:
        """The shard, and up to `max_topics` topics whose ids come after this one."""

        def body(timeout_ms: int) -> bytes:
            return messages.describe_shard_request(after, max_topics, timeout_ms)

        page = self._call(Api.DESCRIBE_SHARD, body, messages.describe_shard_response, _own_failure)
        self._data_url = self._data_url or _checked(page).data_url
        return _checked(page)

    def topics(self, a_page: int = TOPICS_A_PAGE) -> Iterator[TopicDescription]:
        """All topics in the order of their ids, a page at a time."""
        after, has_more = ZERO_UUID, True
        while has_more:
            page = self.describe(after, a_page)
            yield from page.topics
            has_more = page.has_more and bool(page.topics)
            if page.topics:
                after = page.topics[-1].topic_id

    def find_batches(
        self, topic_id: TopicId, partition: int, offset: int, max_batches: int = RUNS_A_PAGE
    ) -> FoundRuns:
        """A page of runs of one partition, from the one that holds `offset` on; none at the high watermark.
        An offset out of range and an unknown partition are in its `failure`."""
        query = RunQuery(topic_id, partition, offset)
        return self.find_many([query], max_batches)[topic_id, partition]

    def find_isolated(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        """The same, with the last stable offset and what was aborted in these runs, all as of one moment.
        `last_stable` is NOT_SAID by a gateway that is older than this build."""
        query = RunQuery(topic_id, partition, offset, wants_isolation=True)
        return self.find_many([query])[topic_id, partition]

    def find_many(
        self, queries: Sequence[RunQuery], max_batches: int = RUNS_A_PAGE, max_bytes: int = 2**31 - 1
    ) -> dict[tuple[TopicId, int], FoundRuns]:
        """The same of several partitions, by topic id and partition. One for which there was no place in the
        response has no runs below its high watermark, and is requested again."""

        def body(timeout_ms: int) -> bytes:
            return messages.find_batches_request(queries, max_bytes, max_batches, timeout_ms)

        found = self._call(Api.FIND_BATCHES, body, messages.find_batches_response, _first_failure)
        missing = [query for query in queries if (query.topic_id, query.partition) not in found]
        if missing:
            raise PeerUnavailable("the gateway left partitions out of its response")
        return found

    def list_offsets(
        self, topic_id: TopicId, partitions: Sequence[int], timestamp: int
    ) -> dict[int, FoundOffset]:
        """Exact offsets: -1 latest, -2 earliest, -3 of the greatest timestamp."""

        def body(timeout_ms: int) -> bytes:
            return messages.list_offsets_request(topic_id, partitions, timestamp, timeout_ms)

        return self._call(Api.LIST_OFFSETS, body, messages.list_offsets_response, _first_failure)

    def describe_files(self, object_keys: Sequence[str]) -> list[DescribedFile]:
        """In the order of the keys."""

        def body(timeout_ms: int) -> bytes:
            return messages.describe_files_request(object_keys, timeout_ms)

        def failure(files: list[DescribedFile]) -> Failure | None:
            return next((file.failure for file in files if file.failure), None)

        return self._call(Api.DESCRIBE_FILES, body, messages.describe_files_response, failure)

    def journal(self, first: int, max_bytes: int = JOURNAL_BYTES, max_wait_ms: int = 0) -> JournalPage:
        """Entries from number `first` on. Where there are none yet the gateway waits for up to `max_wait_ms`
        for the next one. `start` above `first`: load a snapshot."""

        def body(timeout_ms: int) -> bytes:
            return messages.journal_follow_request(first, max_bytes, max_wait_ms, timeout_ms)

        return _checked(self._call(Api.JOURNAL_FOLLOW, body, messages.journal_follow_response, _own_failure))

    def swap(self, swap: SwapSegments) -> Swapped | Refused:
        """Put segments in the place of runs. A repeat gets its first result. PeerUnavailable: the outcome is
        unknown, and the same request may be sent again."""

        def body(timeout_ms: int) -> bytes:
            return swap_messages.swap_request(swap, timeout_ms)

        failure, swapped = self._call(
            Api.SEGMENTS_SWAP, body, swap_messages.swap_response, _first, SAME_AGAIN
        )
        if failure.error is ErrorName.REQUEST_TIMED_OUT:
            raise PeerUnavailable(f"the outcome of the swap is unknown: {failure.message}")
        return Refused(*failure) if failure else swapped

    def name_settled(self, naming: NameSettled) -> NewestSettled | Refused:
        """Make a settled ledger the newest one of its partition. A repeat gets its first result.
        PeerUnavailable: the outcome is unknown, and the same request may be sent again."""

        def body(timeout_ms: int) -> bytes:
            return messages.name_settled_request(naming, timeout_ms)

        failure, newest = self._call(Api.SETTLED_LEDGER, body, messages.settled_response, _first, SAME_AGAIN)
        if failure.error is ErrorName.REQUEST_TIMED_OUT:
            raise PeerUnavailable(f"it is unknown whether the settled ledger was named: {failure.message}")
        return Refused(*failure) if failure else newest

    def newest_settled(self, topic_id: TopicId, partition: int) -> NewestSettled:
        """Which settled ledger of a partition the journal names."""

        def body(timeout_ms: int) -> bytes:
            return messages.find_settled_request(topic_id, partition, timeout_ms)

        failure, newest = self._call(Api.SETTLED_LEDGER, body, messages.settled_response, _first)
        if failure:
            raise PeerRefused(failure)
        return newest

    def pin(self, job: bytes) -> Pinned:
        """Take the job's pin, or renew it: to be called every few minutes. An `entry` that has changed: the
        first pin was lost, and the job begins again."""
        return self._pinned(job, release=False)

    def release(self, job: bytes) -> None:
        """The job has ended."""
        self._pinned(job, release=True)

    def adopt_topic(self, adopt: AdoptTopic) -> Adopting | Refused:
        """Begin or end the adoption of a topic, or ask whether it could begin. PeerUnavailable: the outcome
        is unknown, and the same request may be sent again."""

        def body(timeout_ms: int) -> bytes:
            return adoption_messages.adopt_topic_request(adopt, timeout_ms)

        failure, adopting = self._call(
            Api.ADOPT_TOPIC, body, adoption_messages.adopt_topic_response, _first, SAME_AGAIN
        )
        return _certain(failure) or adopting

    def adopt_runs(self, adopt: AdoptRuns) -> Adopted | Refused:
        """Enter runs of a partition whose adoption is open. PeerUnavailable: as `adopt_topic`."""

        def body(timeout_ms: int) -> bytes:
            return adoption_messages.adopt_runs_request(adopt, timeout_ms)

        failure, adopted = self._call(
            Api.ADOPT_RUNS, body, adoption_messages.adopt_runs_response, _first, SAME_AGAIN
        )
        return _certain(failure) or adopted

    def take_snapshot(self, place: str, hold_ms: int) -> TakenSnapshot:
        """Of the ledger, with all that was acknowledged before; its objects are held for the backup at
        `place`."""

        def body(timeout_ms: int) -> bytes:
            return snapshot_messages.snapshot_request(place, hold_ms, timeout_ms)

        failure, taken = self._call(Api.TAKE_SNAPSHOT, body, snapshot_messages.snapshot_response, _first)
        if failure:
            raise PeerRefused(failure)
        return taken

    def _pinned(self, job: bytes, release: bool) -> Pinned:
        def body(timeout_ms: int) -> bytes:
            return messages.pin_request(job, release, timeout_ms)

        failure, pinned = self._call(Api.PIN, body, messages.pin_response, _first)
        if failure:
            raise PeerRefused(failure)
        return pinned

    def _call(
        self,
        api: Api,
        body: Callable[[int], bytes],
        read: Callable[[Reader], Result],
        failure_of: Callable[[Result], Failure | None],
        again: Collection[ErrorName] = RETRIABLE,
    ) -> Result:
        """The first response without a failure of `again`, or the last one before the deadline."""
        deadline = time.monotonic() + self._timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            result: Result | None = None
            try:
                result = self._exchange(api, body, read, deadline)
                failure = failure_of(result)
                if failure is None or failure.error not in again:
                    return result
                reason = str(PeerRefused(failure))
            except (Unreachable, OSError, Garbled) as error:
                self.close()
                reason = str(error)
                can_go_on = self._was_connected and self._link.connects_again
                if isinstance(error, Garbled) or not can_go_on:
                    raise PeerUnavailable(f"no response of the gateway: {reason}") from error
            if time.monotonic() + wait_s >= deadline:
                if result is not None:
                    return result
                raise PeerUnavailable(f"no response of the gateway within {self._timeout_s:g} s: {reason}")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _exchange(
        self, api: Api, body: Callable[[int], bytes], read: Callable[[Reader], Result], deadline: float
    ) -> Result:
        left_s = max(deadline - time.monotonic(), FIRST_WAIT_S)
        if self._sock is None:
            self._sock = self._link.connect(left_s)
            self._was_connected = True
            if self._data_url:
                self._check_place(deadline)
        self._correlation_id = (self._correlation_id + 1) % 2**31
        ends_at = time.monotonic() + left_s + GRACE_S
        self._sock.settimeout(left_s)
        frame = messages.request_frame(api, self._correlation_id, CLIENT_ID, body(int(left_s * 1000)))
        self._sock.sendall(frame)
        (length,) = _LENGTH.unpack(self._receive(self._sock, _LENGTH.size, ends_at))
        if not _LENGTH.size <= length <= MAX_RESPONSE_BYTES:
            raise Garbled(f"a response of {length} bytes")
        correlation_id, reader = messages.response_body(self._receive(self._sock, length, ends_at))
        if correlation_id != self._correlation_id:
            raise Garbled(f"a response to request {correlation_id} in the place of {self._correlation_id}")
        return read(reader)

    def _check_place(self, deadline: float) -> None:
        """After a connection was lost: a gateway whose records were moved meanwhile knows nothing of what is
        written to the place before, and must not be asked to name it. PeerUnavailable, Unreachable."""

        def body(timeout_ms: int) -> bytes:
            return messages.describe_shard_request(ZERO_UUID, 0, timeout_ms)

        page = self._exchange(Api.DESCRIBE_SHARD, body, messages.describe_shard_response, deadline)
        if page.failure:
            if page.failure.error not in RETRIABLE:
                raise PeerRefused(page.failure)
            raise Unreachable(str(PeerRefused(page.failure)))
        if page.data_url != self._data_url:
            self.close()
            raise PeerUnavailable(
                f"the gateway has its records in {page.data_url} by now, no longer in {self._data_url}: run "
                "the job again"
            )

    def _receive(self, sock: socket.socket, size: int, ends_at: float) -> memoryview:
        data = memoryview(bytearray(size))
        at = 0
        while at < size:
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the response did not come in time")
            sock.settimeout(left_s)
            count = sock.recv_into(data[at:])
            if not count:
                raise ConnectionResetError("the gateway has closed the connection")
            at += count
        return data


def _own_failure(page: ShardPage | JournalPage) -> Failure | None:
    return page.failure or None


def _first(result: tuple[Failure, object]) -> Failure:
    return result[0]


def _certain(failure: Failure) -> Refused | None:
    """None: no failure. PeerUnavailable if it is not known whether the request was carried out."""
    if failure.error is ErrorName.REQUEST_TIMED_OUT:
        raise PeerUnavailable(f"the outcome is unknown: {failure.message}")
    return Refused(*failure) if failure else None


def _first_failure(found: dict[Result, FoundRuns] | dict[Result, FoundOffset]) -> Failure | None:
    return next((part.failure for part in found.values() if part.failure.error in RETRIABLE), None)


Page = TypeVar("Page", ShardPage, JournalPage)


def _checked(page: Page) -> Page:
    if page.failure:
        raise PeerRefused(page.failure)
    return page
