"""Responses of a gateway to the clients of the bench, as a server can give them again.

A response to Produce is found by its partition alone, any other by the whole request.
"""

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.wire.apis import ApiKey

COUNT: Final = struct.Struct(">I")
API_AND_VERSION_BYTES: Final = 4
CORRELATION_END: Final = 8
PRODUCE: Final = struct.pack(">h", ApiKey.PRODUCE)


@dataclass(slots=True)
class Recorded:
    """What a server without a broker knows. A request is its payload, from the API key on."""

    topic: str
    partition_at: int = 0
    """Where a Produce request to one partition has the number of it, 4 bytes."""
    produce: dict[bytes, bytes] = field(default_factory=dict)
    """By partition, the response behind its correlation id."""
    others: dict[bytes, bytes] = field(default_factory=dict)
    """By API key, version, and all that comes behind the correlation id."""

    def add(self, request: bytes, response: bytes) -> None:
        body = response[4:]
        if request[:2] != PRODUCE:
            self.others[other_key(request)] = body
            return
        # The name, a byte that counts partitions, and the first of them.
        self.partition_at = request.index(self.topic.encode()) + len(self.topic) + 1
        self.produce.setdefault(request[self.partition_at : self.partition_at + 4], body)

    def write(self, path: Path) -> None:
        """For a server in any language: numbers are 4 bytes, texts have their length in front."""
        parts = [COUNT.pack(self.partition_at)]
        for answers in (self.produce, self.others):
            parts.append(COUNT.pack(len(answers)))
            for key, body in answers.items():
                parts += [COUNT.pack(len(key)), key, COUNT.pack(len(body)), body]
        path.write_bytes(b"".join(parts))


def other_key(request: bytes) -> bytes:
    return request[:API_AND_VERSION_BYTES] + request[CORRELATION_END:]


def read_recorded(data: bytes) -> tuple[int, dict[bytes, bytes], dict[bytes, bytes]]:
    """Where the partition is, the responses to Produce, and the others."""
    at = 0

    def taken(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    def number() -> int:
        return int(COUNT.unpack(taken(COUNT.size))[0])

    def answers() -> Iterator[tuple[bytes, bytes]]:
        for _ in range(number()):
            yield taken(number()), taken(number())

    return number(), dict(answers()), dict(answers())


class Recorder:
    """A proxy between clients and a server, which must advertise the proxy's address."""

    def __init__(self, port: int, host: str, server_port: int, recorded: Recorded) -> None:
        self._port = port
        self._server = host, server_port
        self._recorded = recorded
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self, ready: threading.Event) -> None:
        """Until cancelled."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", self._port)
        ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            connections = list(self._connections)
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        server_reader, server_writer = await asyncio.open_connection(*self._server)
        waiting: list[bytes] = []
        with suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.gather(
                self._requests(reader, server_writer, waiting),
                self._responses(server_reader, writer, waiting),
            )
        for end in (writer, server_writer):
            end.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: list[bytes]
    ) -> None:
        try:
            while True:
                payload = await _payload(reader)
                waiting.append(payload)
                writer.write(COUNT.pack(len(payload)) + payload)
        finally:
            writer.close()

    async def _responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: list[bytes]
    ) -> None:
        while True:
            payload = await _payload(reader)
            self._recorded.add(waiting.pop(0), payload)
            writer.write(COUNT.pack(len(payload)) + payload)


async def _payload(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(COUNT.unpack(await reader.readexactly(COUNT.size))[0])
