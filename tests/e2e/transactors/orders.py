"""What the transactors that are written in Python share: orders come in, results go out."""

import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

AnyProducer = TypeVar("AnyProducer")
END: Final = "end"
CALL_S: Final = 30.0
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Copying:
    """The order `copy`."""

    bootstrap: str
    transactional_id: str
    group: str
    source: str
    target: str
    partitions: int
    batch: int
    abort_every: int
    pause_ms: int

    def is_aborted(self, number: int) -> bool:
        """Whether the transaction of this number, from 1, is one to be aborted."""
        return self.abort_every > 0 and number % self.abort_every == 0

    @property
    def pause_s(self) -> float:
        """How long a transaction waits between its records and its offsets."""
        return self.pause_ms / 1000


class Transactor(Protocol):
    """One client library. Any exception is a result of its order."""

    def init(self, bootstrap: str, producer: str, transactional_id: str, timeout_ms: int) -> None: ...

    def begin(self, producer: str) -> None: ...

    def send(self, producer: str, topic: str, partition: int, values: Iterable[bytes]) -> None: ...

    def end(self, producer: str, commit: bool) -> None: ...

    def read(self, bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]: ...

    def copy(self, copying: Copying) -> None: ...

    def kind_of(self, error: Exception) -> str:
        return type(error).__name__


class ProducersByName(Transactor, Generic[AnyProducer]):
    """A client library whose producers are objects in this process."""

    def __init__(self) -> None:
        self.producers: dict[str, AnyProducer] = {}

    def init(self, bootstrap: str, producer: str, transactional_id: str, timeout_ms: int) -> None:
        self.producers[producer] = self.initialized(bootstrap, transactional_id, timeout_ms)

    @abstractmethod
    def initialized(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> AnyProducer:
        """A producer that has its transactional id."""
        ...


def serve(transactor: Transactor) -> None:
    """Until stdin ends."""
    for line in sys.stdin:
        try:
            result = _carry_out(transactor, json.loads(line))
        except Exception as error:
            result = {"kind": transactor.kind_of(error), "error": str(error)}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _carry_out(transactor: Transactor, order: Mapping[str, Any]) -> dict[str, Any]:
    return ORDERS[order["order"]](transactor, order) or {}


def _init(transactor: Transactor, order: Mapping[str, Any]) -> None:
    transactor.init(order["bootstrap"], order["producer"], order["id"], order["timeout_ms"])


def _begin(transactor: Transactor, order: Mapping[str, Any]) -> None:
    transactor.begin(order["producer"])


def _send(transactor: Transactor, order: Mapping[str, Any]) -> None:
    values = [value.encode() for value in order["values"]]
    transactor.send(order["producer"], order["topic"], order["partition"], values)


def _end(transactor: Transactor, order: Mapping[str, Any]) -> None:
    transactor.end(order["producer"], order["commit"])


def _read(transactor: Transactor, order: Mapping[str, Any]) -> dict[str, Any]:
    values = transactor.read(order["bootstrap"], order["topic"], order["partitions"], order["committed"])
    return {"values": values}


def _copy(transactor: Transactor, order: Mapping[str, Any]) -> None:
    names = ("bootstrap", "id", "group", "source", "target", "partitions", "batch", "abort_every", "pause_ms")
    transactor.copy(Copying(*(order[name] for name in names)))


ORDERS: Final[Mapping[str, Callable[[Transactor, Mapping[str, Any]], dict[str, Any] | None]]] = {
    "init": _init,
    "begin": _begin,
    "send": _send,
    "end": _end,
    "read": _read,
    "copy": _copy,
}


class UntilEnd:
    """Collects the values of each partition until each has come to its `end`."""

    def __init__(self, partitions: int) -> None:
        self.values: list[list[str]] = [[] for _ in range(partitions)]

    def add(self, partition: int, value: bytes) -> None:
        """What comes after the end is not of this reading."""
        if not self._is_over(self.values[partition]):
            self.values[partition].append(value.decode())

    @property
    def is_over(self) -> bool:
        return all(map(self._is_over, self.values))

    @staticmethod
    def _is_over(values: list[str]) -> bool:
        return values[-1:] == [END]
