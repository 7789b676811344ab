"""`dragoman compact segments --watch`: a round that fails is not the last."""

import signal
from collections.abc import Iterator

import pytest

from gateway.cli import compact
from gateway.cli.client import ClientError
from gateway.cli.compact import CompactOptions, compact_segments
from gateway.cli.exits import Exit
from gateway.cli.output import UsageError
from gateway.settings import Settings
from ledger.errors import StoreLocked


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    # A shell has its background processes ignore SIGINT.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, ended)


def watch(monkeypatch: pytest.MonkeyPatch, *rounds: Exit | Exception, number: int = signal.SIGINT) -> Exit:
    """The exit code after these rounds and a signal in the wait after the last."""
    left = list(rounds)

    def once(*_: object) -> Exit:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def sleep(_: float) -> None:
        if not left:
            signal.raise_signal(number)

    monkeypatch.setattr(compact, "_once", once)
    monkeypatch.setattr("time.sleep", sleep)
    return compact_segments(Settings(), CompactOptions(watch=True))


def test_rounds_that_fail_are_one_sentence_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = ClientError("the gateway is gone"), StoreLocked("another job runs")
    assert watch(monkeypatch, *failures, Exit.OK) is Exit.OK
    assert capsys.readouterr().err == "dragoman: the gateway is gone\ndragoman: another job runs\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_the_last_round_ended(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    assert watch(monkeypatch, Exit.OK, number=number) is Exit.OK
    assert watch(monkeypatch, Exit.OK, Exit.FINDINGS, number=number) is Exit.FINDINGS
    assert watch(monkeypatch, Exit.OK, ClientError("gone"), number=number) is Exit.FAILED
    assert watch(monkeypatch, StoreLocked("in use"), number=number) is Exit.IN_USE


def test_wrong_arguments_end_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError):
        watch(monkeypatch, UsageError("no such topic"), Exit.OK)
