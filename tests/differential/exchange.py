"""An exchange: one request, what must exist before it, and what is requested afterwards.

A request is a message of `gateway.wire.messages.generated` in which a few things are placeholders, because
they are different in each run or at each endpoint:

- `"{t}"` in a string is the name of topic `t` of this exchange, the same at both endpoints;
- `IdOf("t")`, `ProducerIdOf("p")`, `MemberOf("m")`, `SESSION` are ids that the endpoint gave earlier in
  the exchange;
- a `Batch` (or a sequence of them) is written where records belong.

Where no message says it, `Cut`, `Patched`, `Body` and `Frame` do.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gateway.wire.apis import ApiKey

if TYPE_CHECKING:
    from tests.differential.conversation import Conversation


@dataclass(frozen=True, slots=True)
class IdOf:
    """The id of a topic that a step created."""

    topic: str = "t"


@dataclass(frozen=True, slots=True)
class ProducerIdOf:
    """The producer id that a step requested."""

    producer: str = "p"


@dataclass(frozen=True, slots=True)
class MemberOf:
    """The id that a member of a group got in a step; `joined`: the one that the exchange's JoinGroup gave."""

    member: str = "m"


@dataclass(frozen=True, slots=True)
class TimeOf:
    """A time this long after the beginning of the run, or before it."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class SessionOf:
    """The id of the fetch session that a step opened."""


SESSION = SessionOf()


@dataclass(frozen=True, slots=True)
class Cut:
    """A message whose last bytes are missing; the frame's length agrees with what is left."""

    message: Any
    bytes_missing: int


@dataclass(frozen=True, slots=True)
class Patched:
    """A message with other bytes at a position of its body."""

    message: Any
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """A message with bytes after its end, inside the frame."""

    message: Any
    data: bytes


@dataclass(frozen=True, slots=True)
class Body:
    """Any bytes after a valid request header."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """Any bytes on the connection, length included; `hang_up` closes our half after them."""

    data: bytes
    hang_up: bool = False


class Step(Protocol):
    """Brings about what an exchange needs. Errors: AssertionError when the endpoint does not comply."""

    def run(self, conversation: "Conversation") -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request. A `fenced` one is sent when the endpoint has applied all topic changes before it."""

    api: ApiKey
    version: int
    request: Any
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """`after` is sent after the request, over a connection that may be new, and its response compared too."""

    name: str
    api: ApiKey
    version: int
    request: Any
    before: Sequence[Step] = ()
    after: Sequence[Call] = ()
    is_timed: bool = False
    """Whether it is compared if the response took WAITED_S or more."""
    is_unpacked: bool = False
    """Whether records are compared decompressed: where endpoints pack them, each has codecs of its own."""

    @property
    def call(self) -> Call:
        return Call(self.api, self.version, self.request)


class Names(Protocol):
    """What placeholders stand for."""

    def topic_name(self, alias: str) -> str: ...

    def topic_id(self, alias: str) -> bytes: ...

    def producer_id(self, alias: str) -> int: ...

    def member_id(self, alias: str) -> str: ...

    def session_id(self) -> int: ...

    def now_ms(self) -> int: ...


class Built(Protocol):
    """A placeholder that is built out of others, as a batch is."""

    def build(self, names: Names) -> bytes: ...


_ALIAS = re.compile(r"\{(\w+)\}")


def resolve(value: Any, names: Names) -> Any:
    """The same value with every placeholder replaced."""
    match value:
        case str():
            return _ALIAS.sub(lambda found: names.topic_name(found.group(1)), value)
        case IdOf(topic):
            return names.topic_id(topic)
        case ProducerIdOf(producer):
            return names.producer_id(producer)
        case MemberOf(member):
            return names.member_id(member)
        case TimeOf(after_ms):
            return names.now_ms() + after_ms
        case SessionOf():
            return names.session_id()
        case list() | tuple():
            return [resolve(item, names) for item in value]
    if hasattr(value, "build"):
        return value.build(names)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A generated message has only fields that its constructor takes.
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value)(**{name: resolve(item, names) for name, item in fields.items()})
    return value
