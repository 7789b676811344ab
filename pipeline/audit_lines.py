"""The objects of an audit on their way to a job, and what was found in them on its way back.

Tasks go through a named pipe, each with its length before it, so that neither end holds all of them: 4 bytes
big endian, then msgpack. Results are lines of JSON, as all that a job says.
"""

import dataclasses
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final

import msgspec

from ledger.auditing.tasks import ObjectResult, ObjectTask

_LENGTH: Final = struct.Struct(">I")
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ObjectTask)


def encoded_tasks(tasks: Iterable[ObjectTask]) -> Iterator[bytes]:
    for task in tasks:
        body = _ENCODER.encode(task)
        yield _LENGTH.pack(len(body)) + body


def read_tasks(pipe: BinaryIO) -> Iterator[ObjectTask]:
    """Up to the end of the pipe. EOFError if that is within a task: its writer has died."""
    while head := pipe.read(_LENGTH.size):
        size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        body = pipe.read(size)
        if not size or len(body) < size:
            raise EOFError("the list of objects is cut off: the command that made it has ended")
        yield _DECODER.decode(body)


def result_fields(result: ObjectResult) -> dict[str, Any]:
    """As JSON takes it."""
    return dataclasses.asdict(result)


def result_of(fields: Mapping[str, Any]) -> ObjectResult:
    return msgspec.convert(fields, ObjectResult)
