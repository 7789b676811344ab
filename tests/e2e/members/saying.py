"""What the members that are written in Python share: the arguments, the events, and the end."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

SESSION_MS: Final = 20_000
HEARTBEAT_MS: Final = 1_000
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Orders:
    bootstrap: str
    group: str
    topic: str
    members: int
    cooperative: bool
    instance_prefix: str

    @classmethod
    def from_arguments(cls) -> "Orders":
        bootstrap, group, topic, members, strategy, prefix = sys.argv[1:]
        return cls(bootstrap, group, topic, int(members), strategy == "cooperative", prefix)

    def instance(self, member: int) -> str | None:
        return f"{self.instance_prefix}-{member}" if self.instance_prefix else None


class Voice:
    """Says the events of one member. Safe to call from several threads."""

    _lock = threading.Lock()

    def __init__(self, member: int) -> None:
        self.member = member

    def say(self, event: str, **fields: object) -> None:
        line = json.dumps({"at": time.monotonic_ns(), "member": self.member, "event": event, **fields})
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def partitions(self, event: str, partitions: Iterable[int]) -> None:
        self.say(event, partitions=sorted(partitions))

    def read(self, records: Iterable[tuple[int, int]]) -> None:
        self.say("read", records=[list(record) for record in records])


def run_members(orders: Orders, member: Callable[[Orders, int, threading.Event], None]) -> None:
    """Each member in a thread of its own, until stdin ends."""
    stopping = threading.Event()

    def run(number: int) -> None:
        try:
            member(orders, number, stopping)
        except Exception as error:
            Voice(number).say("failed", reason=repr(error))

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(orders.members)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join(60)
