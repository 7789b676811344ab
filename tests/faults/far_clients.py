"""Clients of every kind at one gateway, and what must be there whatever died: records, groups, configs."""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from gateway.addresses import Address
from tests.faults.load import Ack, Load, problems, read_all
from tests.faults.members import Worker, problems_of_group
from tests.support.gateway import Gateway
from tests.support.group_member import Member
from tests.support.topics import create_topics

TOPICS: Final[Mapping[str, int]] = {"one": 1, "many": 16}
"""That producers write to."""
PRODUCERS: Final = ("one", "many", "many")
GROUP, GROUP_TOPIC, GROUP_PARTITIONS = "g", "t", 12
WORKERS: Final = 3
ALTERED, CONFIG, FIRST_VALUE = "one", "retention.ms", 1_000_000_000
ADMIN_TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.1
TOPIC_EVERY: Final = 8
STOP_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class Administrator:
    """Alters a config to ever higher values, and makes topics, in a thread of its own."""

    bootstrap: str
    sent: int = 0
    acked: int = 0
    """Numbers of alterations."""
    made: list[str] = field(default_factory=list)
    """Names of topics whose creation was acknowledged."""
    refused: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> "Administrator":
        self._thread = threading.Thread(target=self._run, name="administrator", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        assert self._thread is not None
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **QUICK_RECONNECTS})
        while not self._stopping.is_set():
            try:
                self._alter(admin)
                if self.sent % TOPIC_EVERY == 0:
                    self._create(admin)
            except KafkaException as error:
                self.refused.append(error.args[0].name())
            time.sleep(PAUSE_S)

    def _alter(self, admin: AdminClient) -> None:
        self.sent += 1
        number = self.sent
        entry = ConfigEntry(CONFIG, str(FIRST_VALUE + number), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, ALTERED, incremental_configs=[entry])
        altered = admin.incremental_alter_configs([resource], request_timeout=ADMIN_TIMEOUT_S)
        altered[resource].result(2 * ADMIN_TIMEOUT_S)
        self.acked = number

    def _create(self, admin: AdminClient) -> None:
        name = f"made-{self.sent}"
        created = admin.create_topics([NewTopic(name, 2, 1)], request_timeout=ADMIN_TIMEOUT_S)
        created[name].result(2 * ADMIN_TIMEOUT_S)
        self.made.append(name)

    def problems(self) -> list[str]:
        """What a gateway has lost of what was acknowledged."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        resource = ConfigResource(ResourceType.TOPIC, ALTERED)
        described = admin.describe_configs([resource], request_timeout=ADMIN_TIMEOUT_S)[resource].result()
        value = int(described[CONFIG].value) - FIRST_VALUE
        wrong = []
        if self.sent and not self.acked <= value <= self.sent:
            wrong.append(f"{CONFIG} has value {value}: {self.acked} was acked, {self.sent} the last sent")
        topics = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        return wrong + [f"topic {name} is gone" for name in self.made if len(_partitions(topics, name)) != 2]


def _partitions(topics: Mapping[str, object], name: str) -> Sequence[object]:
    return tuple(getattr(topics.get(name), "partitions", ()))


QUICK_RECONNECTS: Final[Mapping[str, int]] = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


@dataclass(slots=True)
class Clients:
    """All that use one gateway while it is killed or cut off."""

    gateway: Gateway
    loads: list[Load]
    workers: list[Worker]
    administrator: Administrator
    unanswered: list[int] = field(default_factory=list)

    @property
    def acks(self) -> list[Ack]:
        return [ack for load in self.loads for ack in load.acks]

    def stop(self) -> None:
        """Send no more, and wait for the responses to what was sent."""
        for load in self.loads:
            load.stop_sending()
        for worker in self.workers:
            worker.stopping.set()
        self.administrator.stop()
        for worker in self.workers:
            worker.stop()
        for load in self.loads:
            load.finish(STOP_TIMEOUT_S)

    def problems(self, memberships_last: bool = True) -> list[str]:
        """After `stop`: what is missing or wrong in what the gateway has now. Empty = all is well.
        `memberships_last`: see `problems_of_group`."""
        log = read_all(self.gateway.bootstrap, TOPICS)
        failures = [failure for load in self.loads for failure in load.failures]
        wrong = [*failures, *problems(log, self.acks)[:20]]
        stored, acked = sum(map(len, log.values())), len(self.acks)
        if stored != acked:
            wrong.append(f"{stored} records are there, {acked} were acked, and all producers have finished")
        wrong += problems_of_group(self.workers, memberships_last)
        wrong += _offset_problems(self.workers)
        return wrong + self.administrator.problems()

    def summary(self) -> str:
        commits = sum(len(worker.acked) for worker in self.workers)
        generations = {joined.generation for worker in self.workers for joined in worker.joined}
        administrator = self.administrator
        return (
            f"{len(self.acks)} records and {commits} commits acked, {len(generations)} generations, "
            f"{administrator.acked} of {administrator.sent} alterations, {len(administrator.made)} topics"
        )


def _offset_problems(workers: Sequence[Worker]) -> list[str]:
    """What is committed in the end against what was acknowledged."""
    committed = workers[0].member.committed(range(GROUP_PARTITIONS))
    wrong = []
    for partition, offset in committed.items():
        acked = max(
            (a.offset for worker in workers for a in worker.acked if a.partition == partition), default=-1
        )
        # The last commit may have had its effect without a response.
        if not acked <= offset <= acked + 1:
            wrong.append(f"{GROUP}: offset {acked} of partition {partition} was acked, {offset} is committed")
    return wrong


@contextmanager
def clients_at(gateway: Gateway, pause_s: float = 0.0, outstanding: int = 400) -> Iterator[Clients]:
    """Of a ready gateway. `pause_s` of each producer between two records."""
    create_topics(gateway.bootstrap, {**TOPICS, GROUP_TOPIC: GROUP_PARTITIONS})
    address = Address(gateway.host, gateway.port)
    clients = Clients(
        gateway,
        [
            Load(gateway.bootstrap, f"p{n}", topic, TOPICS[topic], outstanding, pause_s).start()
            for n, topic in enumerate(PRODUCERS)
        ],
        [Worker(Member(address, GROUP), GROUP_PARTITIONS, n).start() for n in range(WORKERS)],
        Administrator(gateway.bootstrap).start(),
    )
    try:
        yield clients
    finally:
        for load in clients.loads:
            load.stop_sending()
        for worker in clients.workers:
            worker.stopping.set()


def until_all_go_on(clients: Clients, timeout_s: float) -> float:
    """Until every producer, the group and the administrator have got new acknowledgements; the seconds."""
    begun = time.monotonic()
    before = _progress(clients)
    while not all(now > then for now, then in zip(_progress(clients), before, strict=True)):
        assert time.monotonic() - begun < timeout_s, (
            f"no progress of all within {timeout_s} s: {before}, now {_progress(clients)}:\n"
            f"{clients.gateway.log_tail()}"
        )
        time.sleep(0.02)
    return time.monotonic() - begun


def _progress(clients: Clients) -> list[int]:
    commits = sum(len(worker.acked) for worker in clients.workers)
    return list(
        itertools.chain((len(load.acks) for load in clients.loads), [commits, clients.administrator.acked])
    )
