"""Print the wanted loopback port when it is free, else another free one and a note on stderr."""

import socket
import sys
from typing import Final

MAX_PORT: Final = 65535


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a server binds: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parsed(text: str, purpose: str) -> int:
    """SystemExit with one sentence if it is no port."""
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_PORT):
        sys.exit(f"Port {text!r} {purpose}: expected a number from 0 to {MAX_PORT}.")
    return int(text)


def main(text: str, purpose: str, how: str = "") -> None:
    """`how` to go on with another one: a command with {port}."""
    wanted = parsed(text, purpose)
    port = wanted if is_free(wanted) else any_free_port()
    if port != wanted:
        then = f" ({how.format(port=port)})" if how else ""
        print(f"Port {wanted} is taken; {purpose}: port {port} instead{then}.", file=sys.stderr)
    print(port)


if __name__ == "__main__":
    main(*sys.argv[1:])
