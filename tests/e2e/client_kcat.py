"""kcat (formerly kafkacat), the command-line tool over librdkafka: each call is a process of its own.

It says more in JSON than in text: keys, values and header values come out byte for byte, bytes above
0x7f as they are, so that its output is JSON of Latin-1 characters that stand for bytes.
"""

import functools
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.client import (
    CLIENT_TIMEOUT_S,
    CREATE_TIME,
    Ability,
    ClientUnderTest,
    Codec,
    Earliest,
    FromOffset,
    FromTimestamp,
    Latest,
    Received,
    Record,
    Start,
)
from tests.support.debian import PackageMissing, UnpackedProgram, unpacked_program

# In front of the value, and after it; no record of the tests holds them.
KEY_ENDS, RECORD_ENDS = b"<end of key>", b"<end of record>"
DELIVERED = re.compile(r"^% Message delivered to partition \d+ \(offset (\d+)\)", re.MULTILINE)
FOUND = re.compile(r"\] offset (-?\d+)$", re.MULTILINE)
END = -1


class KcatClient(ClientUnderTest):
    name = "kcat"
    cannot: Mapping[Ability, str] = MappingProxyType(
        {
            Ability.CREATE_TOPICS: "kcat has no admin calls",
            Ability.SET_TIMESTAMPS: "kcat stamps what it sends",
        }
    )

    def __init__(self, bootstrap: str, program: UnpackedProgram) -> None:
        self.bootstrap = bootstrap
        self._program = program

    def create_topic(self, topic: str, partitions: int) -> None:
        raise NotImplementedError(self.cannot[Ability.CREATE_TOPICS])

    def partition_count(self, topic: str) -> int:
        (described,) = json.loads(self._run("-L", "-J", "-t", topic))["topics"]
        return len(described["partitions"])

    def can_send(self, record: Record) -> bool:
        """Nothing between two ends of records is no record; nulls are either all or none that is empty;
        headers come from the command line.
        """
        if record.key is None and not record.value:
            return False
        if record.value is None and record.key == b"":
            return False
        return all(name and "=" not in name and b"\0" not in (value or b"") for name, value in record.headers)

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        offsets = [-1] * len(records)
        settings = ["-z", codec.value, "-X", f"enable.idempotence={idempotent}", "-X", "linger.ms=20"]
        # One process a partition, since that is an argument, and one whenever headers change.
        in_order = sorted(enumerate(records), key=lambda numbered: numbered[1].partition)
        for options, numbered in itertools.groupby(in_order, key=lambda numbered: options_for(numbered[1])):
            numbers, alike = zip(*numbered, strict=True)
            acked = self._send(["-t", topic, *options, *settings], alike)
            for number, offset in zip(numbers, acked, strict=True):
                offsets[number] = offset
        return offsets

    def _send(self, options: Sequence[str], records: Sequence[Record]) -> list[int]:
        content = b"".join(line(record) for record in records)
        delimiters = ["-K", KEY_ENDS.decode(), "-D", RECORD_ENDS.decode()]
        done = self._completed(["-P", "-vv", "-X", "acks=all", *delimiters, *options], content)
        return [int(offset) for offset in DELIVERED.findall(done.stderr.decode())]

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        start: Start,
        count: int,
        on_positioned: Callable[[], object] | None = None,
    ) -> list[Received]:
        where = ["-t", topic]
        if len(partitions) == 1:
            where += ["-p", str(partitions[0])]
        elif len(partitions) != self.partition_count(topic):
            raise NotImplementedError("kcat reads one partition or all")
        where += ["-o", self._begin(topic, partitions, start, on_positioned is not None)]
        if on_positioned is not None:
            on_positioned()
        text = self._run("-C", "-J", *where, "-c", str(count), "-X", "check.crcs=true")
        return [received_from(json.loads(line)) for line in text.split("\n") if line]

    def end_offset(self, topic: str, partition: int) -> int:
        return self._query(topic, partition, END)

    def _begin(self, topic: str, partitions: Sequence[int], start: Start, fixed: bool) -> str:
        """What -o takes; an offset when it must be `fixed` before reading."""
        match start:
            case Earliest():
                return "beginning"
            case FromOffset(offset):
                return str(offset)
            case FromTimestamp(timestamp_ms) if not fixed:
                return f"s@{timestamp_ms}"
            case FromTimestamp(timestamp_ms):
                (partition,) = partitions
                found = self._query(topic, partition, timestamp_ms)
                return str(self.end_offset(topic, partition) if found == END else found)
            case Latest():
                (partition,) = partitions
                return str(self.end_offset(topic, partition))

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first offset at or after a time; END when there is none, or the end when asked for END."""
        (found,) = FOUND.findall(self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}"))
        return int(found)

    def _run(self, *arguments: str) -> str:
        """Its output as Latin-1."""
        return self._completed(["-q", *arguments]).stdout.decode("latin-1")

    def _completed(
        self, arguments: Sequence[str], content: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Errors: RuntimeError with what kcat said; TimeoutExpired."""
        done = subprocess.run(
            [str(self._program.path), "-b", self.bootstrap, "-m", "30", *arguments],
            input=content,
            capture_output=True,
            env=self._program.environment,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kcat {arguments}: {done.stderr[-2000:].decode(errors='replace')}")
        return done


@functools.cache
def kcat() -> UnpackedProgram | str:
    """From PATH, else from its Debian package; else the reason why there is none."""
    path = shutil.which("kcat")
    if path is not None:
        return UnpackedProgram(Path(path), os.environ)
    try:
        return unpacked_program("kcat", "kcat")
    except PackageMissing as error:
        return f"no kcat on PATH, and {error}"


def options_for(record: Record) -> list[str]:
    """What the command line says for all records of a process."""
    options = ["-p", str(record.partition)]
    for name, value in record.headers:
        options += ["-H", name if value is None else f"{name}={os.fsdecode(value)}"]
    # Empty values become null; and so would empty keys.
    return [*options, "-Z"] if record.value is None else options


def line(record: Record) -> bytes:
    assert KEY_ENDS not in (record.key or b"") and RECORD_ENDS not in (record.value or b"")
    key = b"" if record.key is None else record.key + KEY_ENDS
    return key + (record.value or b"") + RECORD_ENDS


def received_from(message: Mapping[str, Any]) -> Received:
    names, values = message.get("headers", [])[::2], message.get("headers", [])[1::2]
    headers = tuple(
        (name.encode("latin-1").decode(), in_bytes(value)) for name, value in zip(names, values, strict=True)
    )
    record = Record(
        message["partition"], message["ts"], in_bytes(message["key"]), in_bytes(message["payload"]), headers
    )
    return Received(message["offset"], {"create": CREATE_TIME, "logappend": 1}[message["tstype"]], record)


def in_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
