"""An etcd of three members of which one is killed at a time, below a gateway and clients of all kinds.

Nothing that was acknowledged is lost, nothing is there twice, and producers wait for as long as etcd elects.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.faults.far_clients import Clients, clients_at, until_all_go_on
from tests.support.etcd_cluster import EtcdCluster, EtcdMember, running_cluster
from tests.support.far_stores import ETCD_S3, FarPlace, far_gateway
from tests.support.s3_servers import S3Server

SENT_EVERY_S: Final = 0.005
RECOVERY_S: Final = 60.0
AWAY_S: Final = 5.0
"""How long a killed member is away: longer than an election takes."""
POLL_S: Final = 0.01
MAX_GAP_S: Final = 20.0
"""Without an acknowledgement. An election takes 1 to 2 s, and a call up to 5 s until it is given up."""
OPTIONS: Final = ("--set", "groups.group.initial.rebalance.delay.ms=200")


@contextmanager
def clients_over(cluster: EtcdCluster, metadata: str, s3: S3Server, directory: Path) -> Iterator[Clients]:
    """At its end the gateway is the same process, and has all that was acknowledged."""
    with far_gateway(FarPlace(ETCD_S3, metadata, s3.url()), directory, OPTIONS) as gateway:
        pid = gateway.pid
        with clients_at(gateway, SENT_EVERY_S) as clients:
            until_all_go_on(clients, RECOVERY_S)
            yield clients
            until_all_go_on(clients, RECOVERY_S)
            clients.stop()
            print(clients.summary())  # noqa: T201
            assert gateway.is_running() and gateway.pid == pid
            assert clients.problems(memberships_last=False) == []


def longest_gap_without(member: EtcdMember, clients: Clients) -> float:
    """Seconds without an acknowledgement of any producer, while the member is away and comes back."""
    begun = last = time.monotonic()
    acked, longest, is_away = len(clients.acks), 0.0, True
    member.kill9()
    while is_away or time.monotonic() < begun + 2 * AWAY_S:
        time.sleep(POLL_S)
        now, count = time.monotonic(), len(clients.acks)
        longest = max(longest, now - last)
        if count > acked:
            acked, last = count, now
        if is_away and now >= begun + AWAY_S:
            member.spawn()
            is_away = False
    member.until_healthy()
    return longest


@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_leader_of_etcd_dies(weed_s3: S3Server, tmp_path: Path) -> None:
    with (
        running_cluster() as cluster,
        clients_over(cluster, cluster.url(), weed_s3, tmp_path) as clients,
    ):
        gap_s = longest_gap_without(cluster.leader(), clients)
        print(f"{gap_s:.1f} s without an acknowledgement")  # noqa: T201
        assert gap_s < MAX_GAP_S


@pytest.mark.full
@pytest.mark.timeout(600)
def test_each_member_of_etcd_dies_in_turn_and_the_leader_again(weed_s3: S3Server, tmp_path: Path) -> None:
    with (
        running_cluster() as cluster,
        clients_over(cluster, cluster.url(), weed_s3, tmp_path) as clients,
    ):
        for number in range(2 * len(cluster.members)):
            leader = cluster.leader()
            member = leader if number % 2 else cluster.members[number // 2]
            gap_s = longest_gap_without(member, clients)
            role = "leader" if member is leader else "follower"
            print(f"{member.name}, a {role}: {gap_s:.1f} s without an acknowledgement")  # noqa: T201
            assert gap_s < MAX_GAP_S
            until_all_go_on(clients, RECOVERY_S)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_gateway_that_knows_one_member_waits_for_that_one_alone(weed_s3: S3Server, tmp_path: Path) -> None:
    with running_cluster() as cluster:
        known = next(member for member in cluster.members if not member.leads())
        url = cluster.url(known.endpoint)
        with clients_over(cluster, url, weed_s3, tmp_path) as clients:
            for member in cluster.members:
                gap_s = longest_gap_without(member, clients)
                print(f"known: {member is known}, {gap_s:.1f} s")  # noqa: T201
                until_all_go_on(clients, RECOVERY_S)
                if member is known:
                    assert gap_s > AWAY_S / 2
                else:
                    assert gap_s < MAX_GAP_S
