"""A store without space, under clients of all kinds: /readyz says what to do, and once there is space the
gateway goes on by itself. Nothing that was acknowledged is lost, and errors are such as clients try again.
"""

import base64
import itertools
import time
import urllib.error
from pathlib import Path
from typing import Final

import pytest

from tests.faults.far_clients import until_all_go_on
from tests.faults.test_far_failures import (
    POLL_S,
    RECOVERY_S,
    RETRIABLE,
    Scene,
    not_ready,
    produced_to,
    scene_over,
    wait_until_ready,
)
from tests.support.etcd import EtcdServer, running_etcd
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3
from tests.support.http_proxy import Denied
from tests.support.s3_servers import S3Server
from tests.support.store_ways import Store, Trouble
from tests.support.weed import Weed

MIB: Final = 1024 * 1024
QUOTA: Final = 16 * MIB
OTHERS: Final = "others/"
OTHERS_END: Final = "others0"
"""The first key after all of theirs."""
ANSWER_MS: Final = 5_000
FULL_BUCKET: Final = Trouble(
    "out-of-space",
    Store.S3,
    denied=Denied(lambda request: request.method == "PUT", "XMinioStorageFull", 507),
)


def fill(etcd: EtcdServer) -> None:
    """As another program does that uses the same etcd."""
    for number in itertools.count():
        value = base64.b64encode(bytes(MIB)).decode()
        try:
            etcd.ask("kv/put", {"key": encoded(f"{OTHERS}{number}"), "value": value})
        except urllib.error.HTTPError as error:
            assert "database space exceeded" in error.read().decode()
            return


def make_space(etcd: EtcdServer) -> None:
    """As docs/operations.md says, after the other program's keys are deleted."""
    deleted = etcd.ask("kv/deleterange", {"key": encoded(OTHERS), "range_end": encoded(OTHERS_END)})
    etcd.ask("kv/compaction", {"revision": deleted["header"]["revision"], "physical": True})
    etcd.ask("maintenance/defragment")
    for alarm in etcd.ask("maintenance/alarm", {"action": "GET"})["alarms"]:
        etcd.ask("maintenance/alarm", {"action": "DEACTIVATE", **alarm})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def reason_for(scene: Scene, reason: str) -> str:
    """The detail of a reason why the gateway is not ready, once there is one."""
    deadline = time.monotonic() + RECOVERY_S
    while reason not in (found := not_ready(scene.gateway)):
        assert time.monotonic() < deadline, found
        time.sleep(POLL_S)
    return found[reason]


def goes_on(scene: Scene, pid: int) -> None:
    until_all_go_on(scene.clients, RECOVERY_S)
    wait_until_ready(scene.gateway)
    assert scene.gateway.is_running() and scene.gateway.pid == pid
    assert scene.produced() <= RETRIABLE


@pytest.mark.timeout(240)
def test_an_etcd_that_another_program_has_filled(weed: Weed, weed_s3: S3Server, tmp_path: Path) -> None:
    with (
        running_etcd(flags=[f"--quota-backend-bytes={QUOTA}"]) as etcd,
        scene_over(ETCD_S3, weed, etcd, tmp_path) as scene,
    ):
        pid = scene.gateway.pid
        fill(etcd)
        detail = reason_for(scene, "store_full")
        assert "(NOSPACE)" in detail and "alarm disarm" in detail and "docs/operations.md" in detail
        error, _ = produced_to(scene.gateway, ANSWER_MS)
        assert error in RETRIABLE - {"NONE"}
        make_space(etcd)
        goes_on(scene, pid)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("row", [pytest.param(ETCD_S3, marks=pytest.mark.full), BUCKET_ALONE])
def test_a_bucket_without_space(
    row: str, weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with scene_over(row, weed, etcd, tmp_path) as scene:
        pid = scene.gateway.pid
        with scene.ways.trouble(FULL_BUCKET):
            assert "it is full: free space, or add some" in reason_for(scene, "store")
            error, _ = produced_to(scene.gateway, ANSWER_MS)
            assert error in RETRIABLE - {"NONE"}
        goes_on(scene, pid)
