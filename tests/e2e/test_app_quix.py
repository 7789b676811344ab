"""docs/examples/quix-streams: a conversion of each record, and counts by window that outlive it."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application, GroupOffsets, copied_example
from tests.support.client import Codec, Earliest, Record
from tests.support.environments import QUIX_REQUIREMENTS, python_with

WAIT_S: Final = 60.0
MEASURED: Final = "quix-example-measured"
CONVERTED: Final = "quix-example-converted"
COUNTED: Final = "quix-example-counted"
ROOMS: Final = 3
WINDOW_S: Final = 10
# The beginning of a window, ten minutes ago: much older records would fall under retention.ms.
BEGINNING_MS: Final = (int(time.time()) // WINDOW_S - 60) * WINDOW_S * 1000


@pytest.fixture
def rooms(endpoint: Endpoint, tmp_path: Path) -> Iterator[Application]:
    """`rooms.py` with its state in `state` below the test's directory; not started yet."""
    example = copied_example("quix-streams", tmp_path, {"127.0.0.1:9092": endpoint.bootstrap})
    python = python_with(QUIX_REQUIREMENTS)
    application = Application([str(python), "rooms.py", "--state", str(tmp_path / "state")], example)
    yield application
    application.kill9()


def test_each_record_is_converted_once_and_counts_continue_after_a_restart_without_the_local_state(
    rooms: Application, endpoint: Endpoint, tmp_path: Path
) -> None:
    client = ConfluentClient(endpoint.bootstrap)
    client.create_topic(MEASURED, 1)
    offsets = GroupOffsets(endpoint.bootstrap, "quix-example")

    def wait_until_taken(count: int) -> None:
        rooms.wait_until(lambda: offsets.committed(MEASURED) == count, WAIT_S)

    # In the middle of a window.
    measure(client, range(105))
    rooms.start()
    wait_until_taken(105)
    rooms.stop()
    shutil.rmtree(tmp_path / "state")
    measure(client, range(105, 205))
    rooms.start()
    wait_until_taken(205)
    measure(client, range(205, 300))
    wait_until_taken(300)

    converted = [value for _, value in rows(client, CONVERTED)]
    assert converted == [{**measurement(s), "fahrenheit": celsius(s) * 9 / 5 + 32} for s in range(300)]
    counted = [(key, window["start"], window["value"]) for key, window in rows(client, COUNTED)]
    assert sorted(counted) == closed_windows(300)


def closed_windows(seconds: int) -> list[tuple[bytes, int, int]]:
    """Room, beginning in milliseconds and count of each window but the last, which nothing has closed."""
    counts = Counter((room(s), at_ms(s - s % WINDOW_S)) for s in range(seconds - WINDOW_S))
    return sorted((key, start, count) for (key, start), count in counts.items())


def measure(client: ConfluentClient, seconds: range) -> None:
    """One measurement a second, each in another room."""
    records = [Record(0, at_ms(s), room(s), json.dumps(measurement(s)).encode()) for s in seconds]
    client.produce(MEASURED, records, Codec.NONE, idempotent=True)


def measurement(second: int) -> dict[str, Any]:
    return {"celsius": celsius(second), "at_ms": at_ms(second)}


def room(second: int) -> bytes:
    return f"room {second % ROOMS}".encode()


def at_ms(second: int) -> int:
    return BEGINNING_MS + 1000 * second


def celsius(second: int) -> float:
    return 15.0 + second / 10


def rows(client: ConfluentClient, topic: str) -> list[tuple[bytes, dict[str, Any]]]:
    """Key and value of each record, by offset."""
    received = client.consume(topic, [0], Earliest(), client.end_offset(topic, 0))
    return [(one.record.key or b"", json.loads(one.record.value or b"")) for one in received]
