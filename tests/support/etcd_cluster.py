"""A real etcd of three members on loopback, each a process that a test may kill and launch again.

with running_cluster() as cluster:
    ...  # cluster.url(), or cluster.url(cluster.members[0].endpoint)
    cluster.leader().kill9()
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.debian import PackageMissing
from tests.support.etcd import HOST, EtcdServer, place_of_servers

MEMBERS: Final = 3
TIMING: Final = ("--heartbeat-interval=100", "--election-timeout=1000")
"""As etcd's own defaults: members that share a busy machine would elect leaders all the time with shorter
ones."""


class EtcdMember(EtcdServer):
    def __init__(self, directory: Path, name: str, cluster: "EtcdCluster") -> None:
        super().__init__(directory, flags=[f"--name={name}", *TIMING])
        self.name = name
        self._cluster = cluster
        self.take_ports()

    def initial_cluster(self, peers: str) -> list[str]:
        urls = [f"{one.name}=http://{HOST}:{one.peer_port}" for one in self._cluster.members]
        return [f"--initial-cluster={','.join(urls)}"]

    def leads(self) -> bool:
        """As this member believes."""
        status = self.ask("maintenance/status")
        return bool(status["leader"] == status["header"]["member_id"])


class EtcdCluster:
    def __init__(self, directory: Path) -> None:
        self.members: list[EtcdMember] = []
        for number in range(MEMBERS):
            own = directory / str(number)
            own.mkdir()
            self.members.append(EtcdMember(own, f"m{number}", self))

    def start(self) -> None:
        """All serve when this returns: none is healthy without another one."""
        for member in self.members:
            member.spawn()
        for member in self.members:
            member.until_healthy()

    def url(self, *endpoints: str) -> str:
        """By way of all members in turn, or of these endpoints alone."""
        return self.members[0].url(*(endpoints or [member.endpoint for member in self.members]))

    def leader(self) -> EtcdMember:
        """While all members are there."""
        return next(member for member in self.members if member.leads())

    def kill9(self) -> None:
        for member in self.members:
            member.kill9()


@contextmanager
def running_cluster() -> Iterator[EtcdCluster]:
    """Stopped and removed at the end. Skips where no etcd can be had."""
    with tempfile.TemporaryDirectory(prefix="dragoman-etcd-", dir=place_of_servers()) as directory:
        try:
            cluster = EtcdCluster(Path(directory))
        except PackageMissing as error:
            pytest.skip(str(error))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill9()
