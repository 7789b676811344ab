"""Transactors that go on all the time, each in a thread of its own, while gateways die or are replaced."""

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.faults.transactors import CALL_S, END_S, Transactor
from tests.support.transactional_history import TransactionalHistory

MAX_COUNT: Final = 5
COMMITTED: Final = 0.75
JOIN_S: Final = CALL_S + END_S


class Instance:
    """Of an application, in a thread. Its producer is a new one after each error."""

    def __init__(self, transactor: Transactor, dice: random.Random) -> None:
        self.transactor = transactor
        self.failure: BaseException | None = None
        self._dice = dice
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=transactor.transactional_id, daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def where(self) -> str:
        """Its name, and where it is now."""
        assert self._thread.ident is not None
        frame = sys._current_frames().get(self._thread.ident)  # noqa: SLF001
        lines = "" if frame is None else "".join(traceback.format_stack(frame)[-4:])
        return f"{self._thread.name}\n{lines}"

    def _run(self) -> None:
        dice = self._dice
        try:
            while not self._stopping.is_set():
                self.transactor.transact(dice.randint(1, MAX_COUNT), commit=dice.random() < COMMITTED)
        except BaseException as error:
            self.failure = error


class Copying:
    """One instance after the other of an application: one that hangs is given up, and fenced by the next."""

    def __init__(self, make: Callable[[], Transactor], seed: int) -> None:
        self._make = make
        self._dice = random.Random(seed)
        self._committed_before = 0
        self.hung = 0
        self._instance = Instance(make(), self._dice)

    @property
    def committed(self) -> int:
        """Transactions."""
        return self._committed_before + self._instance.transactor.committed

    def attend(self) -> None:
        """As a probe and an orchestrator do."""
        if self._instance.failure is not None:
            raise self._instance.failure
        if self._instance.is_alive and self._instance.transactor.hangs():
            self._instance.ask_to_stop()
            self._committed_before = self.committed
            self.hung += 1
            self._instance = Instance(self._make(), random.Random(self._dice.random()))

    def ask_to_stop(self) -> None:
        self._instance.ask_to_stop()

    def stop(self) -> None:
        deadline = time.monotonic() + JOIN_S
        while self._instance.is_alive:
            assert time.monotonic() < deadline, f"{self.where()} does not end"
            self.attend()
            self._instance.ask_to_stop()
            time.sleep(0.01)
        self.attend()

    def where(self) -> str:
        return self._instance.where()


@dataclass(frozen=True, slots=True)
class Copiers:
    """Of one topic."""

    history: TransactionalHistory
    all: list[Copying]

    @property
    def committed(self) -> int:
        return sum(copying.committed for copying in self.all)

    def wait_until_all_commit(self, within_s: float) -> None:
        """Another transaction each."""
        wanted = [copying.committed + 1 for copying in self.all]
        deadline = time.monotonic() + within_s
        for copying, count in zip(self.all, wanted, strict=True):
            while copying.committed < count:
                assert time.monotonic() < deadline, f"{copying.where()} does not go on"
                copying.attend()
                time.sleep(0.01)

    def summary(self) -> str:
        hung = sum(copying.hung for copying in self.all)
        return f"{self.committed} of {len(self.history.attempts)} transactions committed, {hung} clients hung"

    def stop(self) -> None:
        for copying in self.all:
            copying.ask_to_stop()
        for copying in self.all:
            copying.stop()


@contextmanager
def copiers_at(bootstrap: str, topic: str, partitions: int, count: int, seed: int) -> Iterator[Copiers]:
    """The topic is there already."""
    history = TransactionalHistory()

    def made(number: int) -> Copying:
        name = f"copier-{number}"
        return Copying(lambda: Transactor(bootstrap, history, name, topic, partitions), seed + number)

    copiers = Copiers(history, [made(number) for number in range(count)])
    try:
        yield copiers
    finally:
        for copying in copiers.all:
            copying.ask_to_stop()
