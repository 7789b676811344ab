"""The raw-socket helpers tell a response, a close and silence apart."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.raw import Outcome, frame, raw_connection, raw_exchange, request


@contextmanager
def peer(behaviour: Callable[[socket.socket], None]) -> Iterator[int]:
    """A one-connection server on a free port that does `behaviour`, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                behaviour(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join(5)
            assert not thread.is_alive()


def answer_in_two_pieces(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(frame(b"\0\0\0\7hello")[:6])
    connection.sendall(frame(b"\0\0\0\7hello")[6:])


def half_an_answer(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"\0\0\0\x09abc")


def a_length_that_cannot_be(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"\x7f\xff\xff\xff")


def wait_for_the_client_to_leave(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def test_a_response_comes_whole_and_without_its_length() -> None:
    with peer(answer_in_two_pieces) as port:
        assert raw_exchange("127.0.0.1", port, request(18, 0)) == b"\0\0\0\7hello"


def test_a_close_in_the_middle_of_a_response_is_a_close() -> None:
    with peer(half_an_answer) as port:
        assert raw_exchange("127.0.0.1", port, request(18, 0)) is Outcome.CLOSED


def test_no_response_in_time_is_silence() -> None:
    with peer(wait_for_the_client_to_leave) as port:
        assert raw_exchange("127.0.0.1", port, request(18, 0), timeout_s=0.2) is Outcome.SILENT


def test_a_response_of_two_gigabytes_is_refused() -> None:
    with peer(a_length_that_cannot_be) as port, pytest.raises(ValueError, match="2147483647"):
        raw_exchange("127.0.0.1", port, request(18, 0))


def test_a_peer_that_stays_is_not_taken_for_closed() -> None:
    with peer(wait_for_the_client_to_leave) as port, raw_connection("127.0.0.1", port, 0.2) as connection:
        assert not connection.is_closed_by_peer()


def test_a_peer_that_leaves_is_seen() -> None:
    with peer(half_an_answer) as port, raw_connection("127.0.0.1", port) as connection:
        connection.send(b"x")
        assert connection.is_closed_by_peer()


def test_a_request_has_the_header_that_kafka_requires() -> None:
    assert request(18, 3, b"B", correlation_id=9, client_id="c", flexible=True) == (
        b"\0\0\0\x0d" + b"\0\x12" + b"\0\x03" + b"\0\0\0\x09" + b"\0\x01c" + b"\0" + b"B"
    )
    assert request(18, 0, correlation_id=9, client_id=None)[-2:] == b"\xff\xff"
