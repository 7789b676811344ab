"""What a case is: a name or two, how much load it makes, and what it gives."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.servers import BenchServer, Server, TlsEndpoint, create_topic

GB = 1e9
MB = 1e6
Figures = dict[str, float]
Noise = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much load a case makes."""

    bytes_1k: int
    bytes_100b: int
    paced_seconds: int
    single_records: int
    connections: int
    group_cycles: int
    """How often a group forms and rebalances, and as often before it is measured."""
    commits: int
    idle_members: int
    idle_seconds: int
    transactions: int


# As little as a tick of the kernel's clock (10 ms of CPU) allows: five rounds are to fit into 45 minutes.
FULL = Scale(800_000_000, 160_000_000, 15, 30_000, 2_000, 20, 40_000, 1_000, 30, 4_000)
QUICK = Scale(150_000_000, 50_000_000, 5, 12_000, 2_000, 5, 8_000, 1_000, 9, 1_000)


@dataclass(frozen=True, slots=True)
class Case:
    """`run` gives figures by name of case: a stream gives those of producing and of catching up."""

    names: Sequence[str]
    title: str
    run: Callable[[BenchServer, Scale, Noise], Mapping[str, Figures]]
    acked: Sequence[str] = ()
    """Those of the names that are also compared with a Kafka that syncs before it acknowledges."""


def new_topic(server: Server, name: str, partitions: int) -> str:
    topic = f"{name}-{time.monotonic_ns()}"
    create_topic(server, topic, partitions)
    return topic


def servers_spec(server: Server, topic: str, tls: TlsEndpoint | None = None, **more: Any) -> dict[str, Any]:
    """What a client needs to know of the server; with `tls` it connects there."""
    where = {"bootstrap": server.bootstrap, "host": server.host, "port": server.port}
    if tls is not None:
        where |= {"bootstrap": tls.bootstrap, "config": tls.client_config}
    return {**where, "topic": topic, **more}
