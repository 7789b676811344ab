"""What a connection sends at once: responses that are ready in one iteration of the event loop, together."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from gateway.network.outbound import MAX_JOINED_BYTES, Outbound
from ledger.types import Buffer
from tests.support.held_requests import PRODUCE, serving, until


class Sent(asyncio.Transport):
    """A transport that keeps what each call was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.is_closed = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        assert not self.is_closed
        self.calls.append(b"".join(list_of_data))


def connected() -> tuple[Outbound, Sent]:
    outbound, transport = Outbound(), Sent()
    outbound.connect(transport, 1_000)
    return outbound, transport


def test_a_response_alone_is_sent_at_once() -> None:
    outbound, transport = connected()
    outbound.send([b"a", b"b"])
    outbound.send([b"c"])
    assert transport.calls == [b"ab", b"c"]


def test_responses_are_sent_together_with_the_last_of_them() -> None:
    outbound, transport = connected()
    for response in (b"a", b"b", b"c"):
        outbound.join([response])
    assert not transport.calls and outbound.count_unsent() == 3
    outbound.send([b"d", b"e"])
    assert transport.calls == [b"abcde"] and outbound.count_unsent() == 0
    outbound.send([b"f"])
    assert transport.calls == [b"abcde", b"f"]


def test_the_first_that_waits_is_told() -> None:
    outbound, transport = connected()
    assert [outbound.join([response]) for response in (b"a", b"b")] == [True, False]
    outbound.flush()
    assert outbound.join([b"c"])
    outbound.flush()
    outbound.flush()
    assert transport.calls == [b"ab", b"c"]


def test_no_more_is_kept_than_a_bounded_size() -> None:
    outbound, transport = connected()
    outbound.join([bytes(MAX_JOINED_BYTES - 1)])
    assert not transport.calls
    outbound.join([b"a"])
    assert [len(sent) for sent in transport.calls] == [MAX_JOINED_BYTES]
    assert outbound.count_unsent() == 0


def test_what_waits_is_sent_before_the_connection_is_closed() -> None:
    outbound, transport = connected()
    outbound.join([b"a"])
    outbound.close()
    outbound.flush()
    assert transport.calls == [b"a"] and transport.is_closed


@pytest.mark.parametrize("end", [Outbound.abort, Outbound.disconnect])
def test_nothing_is_sent_when_the_connection_is_lost(end: Callable[[Outbound], None]) -> None:
    outbound, transport = connected()
    released: list[int] = []
    outbound.join([b"a"])
    outbound.hold(lambda: released.append(1), 0.0)
    end(outbound)
    outbound.flush()
    assert not transport.calls and released == [1] and outbound.count_unsent() == 0


def test_what_waits_is_not_taken_for_sent() -> None:
    outbound, transport = connected()
    released: list[int] = []
    outbound.join([b"a"])
    outbound.hold(lambda: released.append(1), 0.0)
    outbound.release_sent()
    assert not released
    outbound.flush()
    outbound.release_sent()
    assert transport.calls == [b"a"] and released == [1]


async def test_requests_that_are_answered_together_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    send = Outbound.flush

    def counted(outbound: Outbound) -> None:
        calls.append(outbound.count_unsent())
        send(outbound)

    monkeypatch.setattr(Outbound, "flush", counted)
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1, 2, 3}
        client.send(PRODUCE, 1, 2, 3)
        await until(lambda: len(gateway.requests.started) == 3)
        gateway.requests.released.set()
        assert await client.responses(3) == [1, 2, 3]
    assert len([size for size in calls if size]) == 1


async def test_a_response_does_not_wait_for_a_request_that_is_still_under_way() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {4}
        client.send(PRODUCE, 1, 2, 3, 4)
        assert await client.responses(3) == [1, 2, 3]
        gateway.requests.released.set()
        assert await client.response() == 4
