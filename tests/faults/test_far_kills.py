"""Everything is in the stores: gateways are killed with their hosts, and their stores beside them (kill -9).

No life of a gateway finds anything of the one before on its host: there is no data directory, and no file but
its log. Now and then another node takes the place.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.faults.asked_stores import ask_stores
from tests.faults.far_clients import (
    ALTERED,
    CONFIG,
    FIRST_VALUE,
    GROUP,
    GROUP_TOPIC,
    Clients,
    clients_at,
    until_all_go_on,
)
from tests.faults.load import problems
from tests.support.etcd import EtcdServer, running_etcd
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3, FAR_ROWS, FarGateway, FarPlace, far_place, s3_url
from tests.support.s3_servers import BUCKET, SEAWEEDFS, S3Server
from tests.support.weed import Weed

KILLS: Final = {ETCD_S3: 5, BUCKET_ALONE: 2}
FULL_KILLS: Final = 100
MOMENTS, FULL_MOMENTS = 3, 100
READY_S: Final = 60.0
RECOVERY_S: Final = 60.0
SENT_EVERY_S: Final = 0.002
"""By each producer."""
OTHER_NODE_EVERY: Final = 3
OPTIONS: Final = (
    *("--set", "groups.group.initial.rebalance.delay.ms=200"),
    *("--set", "ledger.snapshot_bytes=1048576"),
    # Other nodes take the place within a minute, on purpose.
    *("--set", "ledger.takeover_wait_ms=0"),
)


def new_seed() -> int:
    return int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))


@dataclass(slots=True)
class Host:
    """The place of one gateway at a time, always at the same address."""

    gateway: FarGateway
    node_id: int = 1
    lives: int = 1
    gaps_s: list[float] = field(default_factory=list)
    """From each start to the first acknowledgements of all kinds."""
    starts_s: list[float] = field(default_factory=list)

    def start_anew(self) -> None:
        """As another node now and then."""
        self.lives += 1
        if self.lives % OTHER_NODE_EVERY == 0:
            self.node_id += 1
        assert not self.gateway.data_dir.exists()
        self.gateway.options[-1] = str(self.node_id)
        begun = time.monotonic()
        self.gateway.start(READY_S)
        self.starts_s.append(time.monotonic() - begun)


@contextmanager
def host_of(place: FarPlace, directory: Path, inline_bytes: int = -1) -> Iterator[Host]:
    inline = "--set", f"storage.inline_bytes={inline_bytes}"
    gateway = FarGateway(place, directory, [*OPTIONS, *inline, "--node-id", "1"])
    try:
        gateway.start(READY_S)
        yield Host(gateway)
    finally:
        gateway.stop()


def of_most(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} s in the median, {max(seconds):.1f} s at most"


def wait_until_in_flight(host: Host, clients: Clients, dice: random.Random) -> None:
    """All of them are served again, and after a while some records are unanswered."""
    begun = time.monotonic()
    until_all_go_on(clients, RECOVERY_S)
    host.gaps_s.append(time.monotonic() - begun)
    time.sleep(dice.uniform(0.0, 1.0))
    deadline = time.monotonic() + RECOVERY_S
    while not any(load.outstanding for load in clients.loads):
        assert time.monotonic() < deadline


def kill_again_and_again(
    place: FarPlace,
    directory: Path,
    kills: int,
    beside: Sequence[Callable[[Host], None]] = (),
    inline_bytes: int = -1,
) -> None:
    """`beside`: what dies in turn, which is brought back before the next gateway starts, if that is dead."""
    seed = new_seed()
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    with (
        host_of(place, directory, inline_bytes) as host,
        clients_at(host.gateway, SENT_EVERY_S) as clients,
    ):
        for number in range(kills):
            wait_until_in_flight(host, clients, dice)
            if beside:
                beside[number % len(beside)](host)
            else:
                host.gateway.kill9()
            if not host.gateway.is_running():
                host.start_anew()
        wait_until_in_flight(host, clients, dice)
        clients.stop()
        # What the last life has in memory is no proof.
        host.gateway.kill9()
        host.start_anew()
        print(  # noqa: T201
            f"{place.row}: {kills} kills, seed {seed}: {clients.summary()}; ready again within "
            f"{of_most(host.starts_s)}, and all served after another {of_most(host.gaps_s)}"
        )
        assert clients.problems() == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("row", [ETCD_S3, BUCKET_ALONE])
def test_nothing_is_lost_with_the_host(row: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    # Over a bucket alone each draft is an object.
    inline_bytes = 0 if row == BUCKET_ALONE else -1
    kill_again_and_again(far_place(request, row), tmp_path, KILLS[row], inline_bytes=inline_bytes)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("inline_bytes", [0, -1], ids=["objects", "inline"])
@pytest.mark.parametrize("row", FAR_ROWS)
def test_nothing_is_lost_with_a_hundred_hosts(
    row: str, inline_bytes: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kill_again_and_again(far_place(request, row), tmp_path, FULL_KILLS, inline_bytes=inline_bytes)


@dataclass(frozen=True, slots=True)
class Servers:
    """That belong to the tests of this module alone. They keep their disks."""

    weed: Weed
    etcd: EtcdServer

    def deaths(self, row: str) -> list[Callable[[Host], None]]:
        """The gateway and a store, a store alone, and all at once."""
        etcd = [self._kill_etcd] if row == ETCD_S3 else []
        stores: list[Callable[[], Callable[[], None]]] = [*etcd, self._kill_weed]
        deaths: list[Callable[[Host], None]] = []
        for kill in stores:
            deaths += [_together(kill), _alone(kill)]
        return [*deaths, _together(*stores)]

    def _kill_etcd(self) -> Callable[[], None]:
        self.etcd.kill9()
        return self.etcd.launch

    def _kill_weed(self) -> Callable[[], None]:
        self.weed.kill9()
        return self.weed.launch


def _together(*kills: Callable[[], Callable[[], None]]) -> Callable[[Host], None]:
    def die(host: Host) -> None:
        restarts = [kill() for kill in kills]
        host.gateway.kill9()
        for restart in restarts:
            restart()

    return die


def _alone(kill: Callable[[], Callable[[], None]]) -> Callable[[Host], None]:
    """The gateway lives on."""

    def die(host: Host) -> None:
        pid = host.gateway.pid
        kill()()
        assert host.gateway.is_running() and host.gateway.pid == pid

    return die


@pytest.fixture(scope="module")
def servers(aws_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    weed = Weed(tmp_path_factory.mktemp("weed"))
    with running_etcd() as etcd:
        try:
            weed.start()
            S3Server(SEAWEEDFS, weed.s3_endpoint).boto3_client().create_bucket(Bucket=BUCKET)
            yield Servers(weed, etcd)
        finally:
            weed.kill9()


def place_on(servers: Servers, row: str) -> FarPlace:
    name = f"far-{time.time_ns()}"
    metadata = servers.etcd.url() if row == ETCD_S3 else s3_url(servers.weed, f"{name}/metadata")
    return FarPlace(row, metadata, s3_url(servers.weed, f"{name}/data"))


@pytest.mark.timeout(300)
def test_nothing_is_lost_with_the_stores_killed_beside_it(servers: Servers, tmp_path: Path) -> None:
    deaths = servers.deaths(ETCD_S3)
    kill_again_and_again(place_on(servers, ETCD_S3), tmp_path, len(deaths), deaths)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("row", [ETCD_S3, BUCKET_ALONE])
def test_nothing_is_lost_with_the_stores_killed_a_hundred_times(
    row: str, servers: Servers, tmp_path: Path
) -> None:
    kill_again_and_again(place_on(servers, row), tmp_path, FULL_KILLS, servers.deaths(row))


def ask_at(moments: int, place: FarPlace, directory: Path) -> None:
    """What was acknowledged before a moment is in the stores then: at any moment the host may lose power."""
    seed = new_seed()
    dice = random.Random(seed)
    with host_of(place, directory) as host, clients_at(host.gateway, SENT_EVERY_S) as clients:
        until_all_go_on(clients, RECOVERY_S)
        for _ in range(moments):
            time.sleep(dice.uniform(0.0, 0.5))
            acks = clients.acks
            commits = {a.partition: a.offset for worker in clients.workers for a in worker.acked}
            made, altered = list(clients.administrator.made), clients.administrator.acked
            held = asyncio.run(ask_stores(place))
            assert acks and commits and altered
            assert problems(held.log, acks) == []
            for partition, offset in commits.items():
                assert held.offset(GROUP, GROUP_TOPIC, partition) >= offset
            assert int(held.state.topics.by_name[ALTERED].configs[CONFIG]) >= FIRST_VALUE + altered
            assert set(made) <= set(held.state.topics.by_name)
        clients.stop()
        print(f"{place.row}: {moments} moments, seed {seed}: {clients.summary()}")  # noqa: T201


@pytest.mark.timeout(120)
def test_what_is_acknowledged_is_in_the_stores_at_that_moment(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ask_at(MOMENTS, far_place(request, ETCD_S3), tmp_path)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", FAR_ROWS)
def test_what_is_acknowledged_is_in_the_stores_at_a_hundred_moments(
    row: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ask_at(FULL_MOMENTS, far_place(request, row), tmp_path)
