"""How `dragoman serve` ends: when its shard is lost, and by signals."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from gateway.assembly import RunningGateway, running_gateway
from gateway.cli import serve
from gateway.cli.exits import Exit
from gateway.cli.stop import Stop
from gateway.coordination import owner
from gateway.coordination.journal import OwnershipLost
from gateway.settings import Settings
from ledger.partitions.requests import ReserveProducerIds
from ledger.ports import AppendOutcome
from ledger.types import DraftBatch


class FailingLog:
    def __getattr__(self, name: str) -> None:
        raise OSError("the log cannot be written")


@pytest.mark.parametrize("log_fails", [False, True])
@pytest.mark.parametrize(
    ("reason", "code"),
    [(OwnershipLost("journal entry 7 was written by another gateway"), 5), (ZeroDivisionError(), 1)],
    ids=["taken over", "a fault"],
)
def test_a_lost_shard_ends_the_process_with_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: Exception, code: int, log_fails: bool
) -> None:
    if log_fails:
        monkeypatch.setattr(owner, "log", FailingLog())

    @asynccontextmanager
    async def losing(settings: Settings) -> AsyncIterator[RunningGateway]:
        async with running_gateway(settings) as gateway:

            async def fails(number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
                raise reason

            gateway.shard.journal.append = fails  # type: ignore[method-assign]
            gateway.shard.submit(ReserveProducerIds(1))
            yield gateway

    monkeypatch.setattr(serve, "running_gateway", losing)
    flags = {
        "listeners.listen": ["PLAINTEXT://127.0.0.1:0"],
        "admin.listen": "",
        "storage.data_dir": str(tmp_path / "data"),
    }
    assert serve.run_gateway(None, flags, [], None) == Exit(code)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, Exit.OK), (signal.SIGINT, Exit.INTERRUPTED)], ids=["TERM", "INT"]
)
def test_a_signal_ends_a_gateway_that_waits_before_it_is_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals, code: Exit
) -> None:
    closed = []

    @asynccontextmanager
    async def waiting(settings: Settings) -> AsyncIterator[RunningGateway]:
        try:
            os.kill(os.getpid(), number)
            async with asyncio.timeout(20.0):
                await asyncio.Event().wait()
            raise AssertionError("the signal has ended nothing")
            yield
        finally:
            closed.append(True)

    monkeypatch.setattr(serve, "running_gateway", waiting)
    flags = {"admin.listen": "", "storage.data_dir": str(tmp_path / "data")}
    assert serve.run_gateway(None, flags, [], None) == code
    assert closed


async def ends_after(first: signal.Signals, second: signal.Signals, after_s: float) -> list[int]:
    """Exit codes with which the process was ended at once by the second of two signals."""
    ended: list[int] = []
    now_s = 1000.0
    opening = asyncio.create_task(asyncio.sleep(0))
    stop = Stop(opening, lambda: now_s, ended.append)
    stop.is_open = True
    os.kill(os.getpid(), first)
    async with asyncio.timeout(20.0):
        assert await stop.wait(asyncio.Event()) == Exit.OK
    now_s += after_s
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
    os.kill(os.getpid(), second)
    os.kill(os.getpid(), signal.SIGUSR1)
    async with asyncio.timeout(20.0):
        await heard.wait()
    await opening
    return ended


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
@pytest.mark.parametrize("after_s", [0.0, 0.9])
def test_a_signal_that_comes_twice_within_a_second_is_one(second: signal.Signals, after_s: float) -> None:
    assert asyncio.run(ends_after(signal.SIGTERM, second, after_s)) == []


@pytest.mark.parametrize(
    ("second", "code"),
    [(signal.SIGTERM, Exit.FAILED), (signal.SIGINT, Exit.INTERRUPTED)],
    ids=["TERM", "INT"],
)
def test_a_later_second_signal_ends_the_process_at_once_and_says_what_was_cut_off(
    second: signal.Signals, code: Exit
) -> None:
    with structlog.testing.capture_logs() as lines:
        assert asyncio.run(ends_after(signal.SIGTERM, second, 1.1)) == [code]
    (line,) = [line for line in lines if line["event"] == "gateway.killed"]
    assert line["signal"] == second.name and "requests under way were cut off" in line["reason"]
