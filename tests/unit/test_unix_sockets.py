"""Listening on a Unix socket: whose it is, what is there already, and paths that are too long."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from gateway.network import unix_sockets
from gateway.network.unix_sockets import UNIX_PATH_BYTES, SocketFailed, UnixListening
from pipeline.links import UNIX_PATH_BYTES as CLIENTS_PATH_BYTES
from pipeline.links import UnixLink


async def accepted(listening: UnixListening) -> str:
    """The address of the next connection."""
    waiting = asyncio.Event()
    listening.watch(waiting.set)
    async with asyncio.timeout(5):
        await waiting.wait()
    listening.unwatch()
    connection, host = listening.accept()
    connection.close()
    return host


async def test_only_this_user_may_connect(tmp_path: Path) -> None:
    listening = UnixListening(tmp_path / "s")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    with UnixLink(tmp_path / "s").connect(5.0):
        assert await accepted(listening) == ""
    listening.close()
    listening.close()
    assert not (tmp_path / "s").exists()


async def test_a_connection_of_another_user_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a system lets it come, whatever the mode of the file."""
    monkeypatch.setattr(unix_sockets, "user_of", lambda _: os.geteuid() + 1)
    listening = UnixListening(tmp_path / "s")
    with UnixLink(tmp_path / "s").connect(5.0) as client:
        with pytest.raises(ConnectionAbortedError):
            await accepted(listening)
        assert client.recv(1) == b""
    listening.close()


def test_the_system_says_whose_a_connection_is() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert unix_sockets.user_of(here) in (None, os.geteuid())


async def test_two_do_not_share_a_path(tmp_path: Path) -> None:
    first = UnixListening(tmp_path / "s")
    with pytest.raises(SocketFailed, match="another gateway listens there") as refused:
        UnixListening(tmp_path / "s")
    assert refused.value.in_use
    with UnixLink(tmp_path / "s").connect(5.0):
        await accepted(first)
    first.close()
    UnixListening(tmp_path / "s").close()


async def test_a_socket_that_was_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    listening = UnixListening(tmp_path / "s")
    with UnixLink(tmp_path / "s").connect(5.0):
        await accepted(listening)
    listening.close()


@pytest.mark.parametrize("is_link", [False, True])
async def test_a_file_that_is_no_socket_stays(tmp_path: Path, is_link: bool) -> None:
    (tmp_path / "file").write_text("precious")
    path = tmp_path / "link" if is_link else tmp_path / "file"
    if is_link:
        path.symlink_to(tmp_path / "file")
    with pytest.raises(SocketFailed, match="a file that is no socket"):
        UnixListening(path)
    assert path.read_text() == "precious"


async def test_the_socket_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(SocketFailed, match=f"belongs to user {user}"):
        UnixListening(tmp_path / "s")
    assert (tmp_path / "s").is_socket()


async def test_a_path_that_is_too_long_goes_by_its_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    listening = UnixListening(deep / "s")
    assert stat.S_IMODE((deep / "s").stat().st_mode) == 0o600
    with UnixLink(deep / "s").connect(5.0):
        await accepted(listening)
    listening.close()
    assert os.listdir(deep) == ["s.lock"]


async def test_a_path_that_is_too_long_is_refused_where_directories_have_no_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "_DESCRIPTORS", tmp_path / "none")
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with pytest.raises(SocketFailed, match=f"may have {UNIX_PATH_BYTES}; choose a shorter one"):
        UnixListening(deep / "s")
    UnixListening(tmp_path / "s").close()


async def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SocketFailed, match="No such file or directory"):
        UnixListening(tmp_path / "none" / "s")


def test_both_ends_know_the_same_length() -> None:
    assert CLIENTS_PATH_BYTES == UNIX_PATH_BYTES
