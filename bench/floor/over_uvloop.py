"""`over_uvloop.py PORT RECORDED FILE SYNCED`: the least that a server in Python does for an acknowledgement.

All Produce requests that are there in one iteration of the event loop share one write to the file, as long as
they are together, with RWF_DSYNC if SYNCED is 1 and not at all if it is 0.
"""

import asyncio
import mmap
import os
import sys
from pathlib import Path
from typing import cast

import uvloop

from bench.floor.recorded import COUNT, PRODUCE, other_key, read_recorded

FILE_BYTES = 64 << 20
BLOCK_BYTES = 4096
PIECE_BYTES = 1 << 20


class Log:
    """A file that is written again and again, with direct I/O."""

    def __init__(self, path: Path, is_synced: bool) -> None:
        self._is_synced = is_synced
        self._memory = mmap.mmap(-1, PIECE_BYTES)
        self._piece = memoryview(self._memory)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        for at in range(0, FILE_BYTES, PIECE_BYTES):
            os.pwrite(self._file, self._piece, at)
        os.fsync(self._file)
        self._at = self._bytes = 0
        self._waiting: list[Connection] = []

    def add(self, size: int, connection: "Connection") -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._bytes += size
        if connection not in self._waiting:
            self._waiting.append(connection)

    def _flush(self) -> None:
        size = -(-self._bytes // BLOCK_BYTES) * BLOCK_BYTES
        if self._is_synced and size:
            if self._at + size > FILE_BYTES:
                self._at = 0
            os.pwritev(self._file, [self._piece[:size]], self._at, os.RWF_DSYNC)
            self._at += size
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for connection in waiting:
            connection.send()


class Connection(asyncio.Protocol):
    def __init__(self, log: Log, recorded: bytes) -> None:
        self._log = log
        self._partition_at, self._produce, self._others = read_recorded(recorded)
        self._by_api = {key[:4]: body for key, body in self._others.items()}
        self._held = b""
        self._responses: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data, at, size = self._held + data, 0, 0
        while len(data) - at >= COUNT.size and len(data) - at >= (
            whole := 4 + COUNT.unpack_from(data, at)[0]
        ):
            request = data[at + 4 : at + whole]
            if request[:2] == PRODUCE:
                body = self._produce[request[self._partition_at : self._partition_at + 4]]
                size += whole
            else:
                body = self._others.get(other_key(request)) or self._by_api[request[:4]]
            self._responses += (COUNT.pack(len(body) + 4), request[4:8], body)
            at += whole
        self._held = data[at:]
        self._log.add(size, self)

    def send(self) -> None:
        self._transport.write(b"".join(self._responses))
        self._responses.clear()


async def serve(port: int, recorded: Path, file: Path, is_synced: bool) -> None:
    log, answers = Log(file, is_synced), recorded.read_bytes()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(log, answers), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "1"))
