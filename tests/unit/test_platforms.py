"""What differs between Linux, macOS and others, played on the machine of the test."""

import asyncio
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adapters.disk import sync_data, sync_directory
from gateway.cli import main as command
from gateway.coordination.commit_delay import CommitDelay
from gateway.network.acceptor import MACOS_OPEN_MAX, raise_file_limit
from gateway.timers import timerfd
from gateway.timers.timerfd import TimerFd
from tests.support.command import COMMAND
from tests.support.versions import ROOT

F_FULLFSYNC = 51
ENOUGH = 20_000
WAIT_S = 60.0


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which calls made something durable, in order."""
    calls: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("fdatasync"))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, request: calls.append(f"fcntl {request}"))
    return calls


def test_on_macos_bytes_and_names_are_synced_through_the_cache_of_the_drive(
    synced: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    # It has no such call.
    monkeypatch.delattr(os, "fdatasync")
    sync_data(0)
    sync_directory(tmp_path)
    assert synced == [f"fcntl {F_FULLFSYNC}"] * 2


def test_on_linux_bytes_are_synced_without_their_times(synced: list[str], tmp_path: Path) -> None:
    sync_data(0)
    sync_directory(tmp_path)
    assert synced == ["fdatasync", "fsync"]


def test_a_limit_of_files_that_only_looks_unlimited_is_raised_as_far_as_macos_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[tuple[int, int]] = []

    def setrlimit(which: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > MACOS_OPEN_MAX:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    raise_file_limit(ENOUGH)
    assert limits == [(MACOS_OPEN_MAX, resource.RLIM_INFINITY)]


async def test_without_timerfd_entries_are_filled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timerfd, "_libc", object())
    with pytest.raises(OSError, match="no timerfd"):
        TimerFd(0.0003, lambda: None)
    delay = CommitDelay()
    now = asyncio.get_running_loop().time()
    delay.expect(5, now)
    async with asyncio.timeout(WAIT_S):
        await delay.wait(now)
    delay.close()


@pytest.mark.parametrize("platform", ["win32", "cygwin", "sunos5"])
def test_on_another_system_the_command_says_where_it_runs(
    platform: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"dragoman: it runs on Linux and macOS, not on {platform}; WSL has a Linux\n"
    )


AS_ON_MACOS = """
import fcntl, os, socket, sys, sysconfig, time, zoneinfo
import aiohttp, prometheus_client, structlog, typer._adapters, uvloop
import {timer}
sysconfig.get_config_vars()
sync, control = os.fsync, fcntl.fcntl
sys.platform = "darwin"
del os.fdatasync, time.CLOCK_BOOTTIME, socket.SOCK_CLOEXEC
fcntl.fcntl = lambda fd, request, *rest: sync(fd) if request == 51 else control(fd, request, *rest)
sys.modules["{timer}"]._libc = object()
from gateway.cli.main import main
main()
"""
"""Runs the command without what macOS lacks; its libraries are those of this machine, loaded before."""


def test_a_gateway_without_what_macos_lacks_serves(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    flags = ["--listen", "PLAINTEXT://127.0.0.1:0", "--admin", "127.0.0.1:0"]
    flags += ["--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)]
    program = AS_ON_MACOS.format(timer=timerfd.__name__)
    gateway = subprocess.Popen([sys.executable, "-c", program, "serve", *flags], cwd=ROOT)
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and gateway.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        (listener,) = json.loads(ready.read_text())["listeners"]
        bootstrap = f"127.0.0.1:{listener['port']}"
        demo = subprocess.run(
            [*COMMAND, "demo", "--bootstrap", bootstrap], capture_output=True, timeout=WAIT_S
        )
        assert demo.returncode == 0, demo.stderr
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(WAIT_S) == 0
    finally:
        gateway.kill()
        gateway.wait()
