"""Notifies systemd, for units of Type=notify: one datagram to the socket that NOTIFY_SOCKET names.

The protocol is that of sd_notify(3). Errors are ignored: a gateway must not fail for them.
"""

import os
import socket
import time
from typing import Final

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(*assignments: str) -> None:
    """Each NAME=VALUE."""
    address = os.environ.get(SOCKET_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    # An abstract socket: its name begins with a zero byte.
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(assignments).encode(), target)
    except OSError:
        return


def reloading() -> tuple[str, str]:
    """The first notification of a unit of Type=notify-reload after its signal; READY ends the reload."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"
