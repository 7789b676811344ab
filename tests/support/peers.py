"""A peer that answers a job's requests from a script, over a socketpair or a Unix socket.

Frames are written by hand: `bytes.fromhex` with a comment for each field, never by the codec under test.
"""

import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class ScriptedPeer:
    """Reads a request frame, then sends the next response; None closes the connection instead.

    A response is a body after its header, which is written here: the correlation id of the request, and no
    tagged fields."""

    responses: Sequence[bytes | None]
    requests: list[bytes] = field(default_factory=list)
    """Frames without their lengths."""
    connections: int = 0

    def serve(self, sock: socket.socket) -> None:
        """Until the script is at its end, or the client is gone."""
        self.connections += 1
        with sock:
            while len(self.requests) < len(self.responses):
                frame = _frame(sock)
                if not frame:
                    return
                response = self.responses[len(self.requests)]
                self.requests.append(frame)
                if response is None:
                    return
                head = frame[4:8] + b"\0"
                sock.sendall(struct.pack(">i", len(head) + len(response)) + head + response)

    def serve_all(self, listening: socket.socket) -> None:
        while len(self.requests) < len(self.responses):
            sock, _ = listening.accept()
            sock.settimeout(5.0)
            self.serve(sock)

    def in_thread(self, sock: socket.socket, *, listens: bool = False) -> threading.Thread:
        target = self.serve_all if listens else self.serve
        thread = threading.Thread(target=target, args=(sock,), daemon=True)
        thread.start()
        return thread


def _frame(sock: socket.socket) -> bytes:
    head = _exactly(sock, 4)
    return _exactly(sock, struct.unpack(">i", head)[0]) if head else b""


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data
