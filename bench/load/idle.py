"""Opens many connections, each with one ApiVersions exchange, and holds them until the bench continues.

Spec: host, port, connections.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from bench.load.phases import run_phases
from tests.support.raw import raw_connection, request

API_VERSIONS = 18


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        yield {}
        for number in range(spec["connections"]):
            connection = stack.enter_context(raw_connection(spec["host"], spec["port"], 20.0))
            connection.send(request(API_VERSIONS, 0, correlation_id=number))
            response = connection.read_frame()
            if not isinstance(response, bytes):
                raise RuntimeError(f"connection {number}: {response.value}")
        yield {"connections": spec["connections"]}


if __name__ == "__main__":
    run_phases(phases)
