"""Servers that tests start: what another process may do to them, and what they leave behind."""

import os
from pathlib import Path

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs the extra etcd: pip install dragoman[etcd]")

from tests.support.etcd import is_new_enough, without_settings
from tests.support.ports import EndedEarly, with_other_ports
from tests.support.weed import remove_sockets


@pytest.mark.parametrize("error", [EndedEarly("port taken"), RuntimeError("too slow")])
def test_a_server_that_ended_early_is_started_once_more(error: RuntimeError) -> None:
    starts: list[None] = []

    def start() -> None:
        starts.append(None)
        raise error

    with pytest.raises(RuntimeError, match=str(error)):
        with_other_ports(start)
    assert len(starts) == (2 if isinstance(error, EndedEarly) else 1)


def test_sockets_of_other_servers_stay(tmp_path: Path) -> None:
    names = ["seaweedfs-filer-20008.sock", "seaweedfs-s3-grpc-20009.sock", "seaweedfs-filer-20010.sock"]
    for name in [*names, "other-20008.sock"]:
        (tmp_path / name).touch()
    remove_sockets(tmp_path, [20008, 20009])
    assert sorted(os.listdir(tmp_path)) == ["other-20008.sock", "seaweedfs-filer-20010.sock"]


@pytest.mark.parametrize(
    ("shown", "will_do"),
    [("3.4.30", True), ("3.10.0", True), ("4.0.0", True), ("3.3.25", False), ("unknown", False)],
)
def test_an_etcd_that_is_too_old_for_the_adapter_is_not_taken(
    tmp_path: Path, shown: str, will_do: bool
) -> None:
    program = tmp_path / "etcd"
    program.write_text(f"#!/bin/sh\necho 'etcd Version: {shown}'\n")
    program.chmod(0o755)
    assert is_new_enough(str(program)) is will_do
    assert not is_new_enough(str(tmp_path / "absent"))


def test_settings_of_an_etcd_of_the_machine_are_not_inherited() -> None:
    assert without_settings({"ETCD_NAME": "a", "PATH": "/bin", "ETCDCTL_API": "3"}) == {
        "PATH": "/bin",
        "ETCDCTL_API": "3",
    }
