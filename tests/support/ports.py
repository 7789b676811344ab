"""Free loopback ports for servers that must be told their port before they start."""

import socket


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on now; another process may still be faster."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
