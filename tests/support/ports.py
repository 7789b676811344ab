"""Free loopback ports for servers that must be given their port before they start.

Each worker of pytest-xdist has a range of its own. All lie below the ports that Linux gives to outgoing
connections, so that a server which restarts finds its port free.
"""

import itertools
import os
import socket
from collections.abc import Callable

FIRST_PORT = 20_000
PORTS_OF_EACH = 1_500
RANGES = 8

# Two runs on one machine begin at different places.
_tried = itertools.count(os.getpid() * 97)


def worker_number() -> int:
    """Of this worker of pytest-xdist, from 1; 0 in a run without workers."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(name.removeprefix("gw")) + 1 if name.startswith("gw") else 0


def free_ports(count: int) -> list[int]:
    """Distinct ports on which no process listens now. Errors: RuntimeError when the range is used up."""
    first = FIRST_PORT + PORTS_OF_EACH * (worker_number() % RANGES)
    candidates = (first + next(_tried) % PORTS_OF_EACH for _ in range(PORTS_OF_EACH))
    ports = list(itertools.islice(filter(_is_free, candidates), count))
    if len(ports) < count:
        raise RuntimeError(f"no {count} free ports from {first} on")
    return ports


class EndedEarly(RuntimeError):
    """A server ended before it served: maybe as another process has taken one of its ports."""


def with_other_ports(start: Callable[[], None]) -> None:
    """Call `start`, which chooses ports, and once more if the server ended early."""
    try:
        start()
    except EndedEarly:
        start()


def with_port(address: str) -> str:
    """An address on 127.0.0.1 whose port is 0, with a free port; any other as it is."""
    host, _, port = address.rpartition(":")
    if port != "0" or not host.endswith("127.0.0.1"):
        return address
    return f"{host}:{free_ports(1)[0]}"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
