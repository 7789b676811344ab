"""Gateways for attacks, and the table of figures at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.arena import MIB, OUTCOMES, ROUNDS, Arena, Outcome
from tests.support.gateway import Gateway

OpenArena = Callable[..., Arena]


class _Shared:
    """The arena of a module. A test that finds it dead gets another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: list[Arena] = []

    def arena(self) -> Arena:
        if not self._made or not self._made[-1].gateway.is_running():
            self._made.append(opened(self._directory / str(len(self._made))))
        return self._made[-1]

    def close(self) -> None:
        for arena in self._made:
            arena.__exit__(None, None, None)


def opened(directory: Path, *options: str, **settings: Any) -> Arena:
    words = [
        word for name, value in settings.items() for word in ("--set", f"{name.replace('__', '.')}={value}")
    ]
    gateway = Gateway(directory, [*options, *words])
    gateway.start()
    try:
        return Arena(gateway)
    except BaseException:
        gateway.stop()
        raise


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Shared]:
    made = _Shared(tmp_path_factory.mktemp("arena"))
    yield made
    made.close()


@pytest.fixture
def open_arena(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OpenArena]:
    """Opens an arena of the test's own; settings as `section__key=value`."""
    made: list[Arena] = []

    def make(*options: str, **settings: Any) -> Arena:
        arena = opened(tmp_path / f"arena-{len(made)}", *options, **settings)
        arena.rounds = ROUNDS if request.node.get_closest_marker("full") else 1
        made.append(arena)
        return arena

    yield make
    for arena in made:
        arena.__exit__(None, None, None)


@pytest.fixture
def arena(request: pytest.FixtureRequest, shared: _Shared, open_arena: OpenArena) -> Arena:
    """The module's; an attack in its full length has one of its own."""
    return open_arena() if request.node.get_closest_marker("full") else shared.arena()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not OUTCOMES:
        return
    terminalreporter.section("attacks: the good client's longest waits, the gateway's memory and CPU")
    head = f"{'attack':58} {'ack':>8} {'ping':>8} {'arrival':>8} {'memory':>9} {'CPU':>8} {'took':>7}"
    terminalreporter.line(head)
    for outcome in OUTCOMES:
        terminalreporter.line(_line(outcome))


def _line(outcome: Outcome) -> str:
    figures = outcome.figures
    waits = f"{figures.ack_s:6.2f} s {figures.ping_s:6.2f} s {figures.end_to_end_s:6.2f} s"
    cost = f"{figures.memory_bytes / MIB:+6.0f} MB {figures.cpu_s:6.2f} s {figures.seconds:5.1f} s"
    return f"{outcome.attack:58} {waits} {cost}" + (f"  BEYOND: {outcome.verdict}" if outcome.verdict else "")
