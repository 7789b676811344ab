"""A disk that is full, read-only or damaged: one clear sentence, and nothing acknowledged is lost."""

import socket
import sqlite3
import struct
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from gateway.wire.apis import ApiKey
from ledger.batch.header import LAST_OFFSET_DELTA_AT, LENGTH_AT, MAGIC_AT
from ledger.formats.local_log import SEAL_BYTES, LogFrame, read_frames, read_header
from tests.faults.load import (
    READ_TIMEOUT_S,
    Ack,
    Found,
    Load,
    Place,
    found_in,
    new_consumer,
    problems,
    read_all,
)
from tests.faults.small_disk import SmallDisk
from tests.support.client_java import started_jvm, why_no_java_client
from tests.support.data_files import files_with_records, in_log, in_sqlite, object_of, wal_frames
from tests.support.gateway import Gateway, GatewayFactory, running_gateway
from tests.support.raw import raw_exchange, request
from tests.support.record_file import read_received
from tests.support.topics import create_topics
from tests.support.wal_frames import Frame, read_frame

TOPICS = {"t": 4}
STORE_UNREACHABLE, LOCKED = 4, 5
ROUNDS_OF_AHEAD = 30
"""Of 600 KB: three files of 4 MiB are there at most, of which two wait to be used again."""
# What Kafka's clients may try again after (Kafka's error codes; the negative one is the client's own).
RETRIABLE = {KafkaError.KAFKA_STORAGE_ERROR, KafkaError.REQUEST_TIMED_OUT, KafkaError._MSG_TIMED_OUT}


def one_sentence(gateway: Gateway) -> str:
    """What a gateway that refused to start printed in addition to its log: one line, no stack trace."""
    lines = gateway.log_tail().strip().splitlines()
    (said,) = (line for line in lines if not line.startswith("{"))
    return said


def exit_code_and_sentence(gateway: Gateway) -> tuple[int, str]:
    gateway.launch()
    code = gateway.wait_for_exit(20)
    return code, one_sentence(gateway)


def produce_without_retry(bootstrap: str, numbers: Iterable[int]) -> list[int]:
    """The error codes of records with these numbers, 0 = stored."""
    codes: list[int] = []
    config = {"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "message.timeout.ms": 10_000}
    producer = Producer({**config, "linger.ms": 0, "log_level": 0})

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        codes.append(error.code() if error is not None else 0)

    for number in numbers:
        producer.produce("t", b"single/%d:" % number + bytes(200_000), partition=0, on_delivery=on_delivery)
    producer.flush(20)
    return codes


def codes_without_space(bootstrap: str, numbers: Iterator[int]) -> set[int]:
    """The error codes of three records, once what the log has made ahead is used up."""
    for _ in range(ROUNDS_OF_AHEAD):
        codes = produce_without_retry(bootstrap, islice(numbers, 3))
        assert len(codes) == 3
        if 0 not in codes:
            break
    return set(codes)


def is_alive(gateway: Gateway) -> bool:
    url = f"http://{gateway.admin.address}/healthz"
    with urllib.request.urlopen(url, timeout=5) as response:
        return gateway.is_running() and response.status == 200


@pytest.mark.timeout(180)
def test_invariant_10_a_full_disk_fails_produce_retriably_and_loses_nothing_acked(
    disk: SmallDisk, gateway_factory: GatewayFactory
) -> None:
    gateway = gateway_factory(data_dir=disk.path / "data")
    gateway.start()
    create_topics(gateway.bootstrap, TOPICS)
    loads = [Load(gateway.bootstrap, f"p{number}", "t", 4, pause_s=0.001).start() for number in range(2)]
    wait_for_acks(loads, 200)
    numbers = count()
    for _ in range(3):
        disk.fill()
        assert codes_without_space(gateway.bootstrap, numbers) <= RETRIABLE
        acked = sum(len(load.acks) for load in loads)
        assert is_alive(gateway)
        assert sum(map(len, read_all(gateway.bootstrap, TOPICS).values())) >= acked
        disk.free()
        wait_for_acks(loads, 100)
    assert "no space is left" in gateway.log_tail(1 << 20)
    for load in loads:
        load.finish()
    assert [failure for load in loads for failure in load.failures] == []
    acks = [ack for load in loads for ack in load.acks]
    gateway.kill9()
    gateway.start()
    assert problems(read_all(gateway.bootstrap, TOPICS), acks)[:20] == []


def wait_for_acks(loads: list[Load], more: int, timeout_s: float = 60.0) -> None:
    """Until each has got this number more."""
    wanted = [len(load.acks) + more for load in loads]
    deadline = time.monotonic() + timeout_s
    while any(len(load.acks) < count for load, count in zip(loads, wanted, strict=True)):
        assert time.monotonic() < deadline, [(len(load.acks), load.failures[:3]) for load in loads]
        time.sleep(0.02)


def test_invariant_10_a_disk_that_is_full_at_start_is_refused_with_the_reason(
    disk: SmallDisk, gateway_factory: GatewayFactory
) -> None:
    disk.fill()
    code, sentence = exit_code_and_sentence(gateway_factory(data_dir=disk.path / "data"))
    assert code == STORE_UNREACHABLE
    assert "no space" in sentence.casefold() and "--data-dir" in sentence


@pytest.mark.parametrize("was_used", [False, True])
def test_invariant_10_a_read_only_disk_is_refused_at_start_with_the_setting_to_change(
    was_used: bool, disk: SmallDisk, gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    if was_used:
        with running_gateway(tmp_path / "before", ["--data-dir", str(disk.path / "data")]):
            pass
    disk.make_read_only()
    code, sentence = exit_code_and_sentence(gateway_factory(data_dir=disk.path / "data"))
    assert code == STORE_UNREACHABLE
    assert "read-only" in sentence.casefold() and "--data-dir" in sentence and str(disk.path) in sentence


def test_a_port_in_use_is_refused_with_the_setting_to_change(gateway_factory: GatewayFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        gateway = gateway_factory(listen=f"PLAINTEXT://127.0.0.1:{port}")
        code, sentence = exit_code_and_sentence(gateway)
    assert code == LOCKED
    assert f"127.0.0.1:{port}" in sentence and "in use" in sentence and "--listen" in sentence


def test_invariant_02_a_second_gateway_on_one_data_directory_names_the_process_that_holds_it(
    gateway: Gateway, gateway_factory: GatewayFactory
) -> None:
    code, sentence = exit_code_and_sentence(gateway_factory(data_dir=gateway.data_dir))
    assert code == LOCKED
    assert str(gateway.ready.pid) in sentence and str(gateway.data_dir) in sentence
    create_topics(gateway.bootstrap, TOPICS)


def test_a_data_directory_is_free_again_after_kill_9(gateway: Gateway) -> None:
    gateway.kill9()
    gateway.start()


def loaded(gateway: Gateway, records: int = 400, producers: int = 2) -> list[Load]:
    """Records of some producers, and the gateway stopped in good order."""
    gateway.start()
    create_topics(gateway.bootstrap, TOPICS)
    loads = [
        Load(gateway.bootstrap, f"p{number}", "t", 4, 20, max_records=records).start()
        for number in range(producers)
    ]
    for load in loads:
        load.complete()
    assert gateway.terminate() == 0
    return loads


def tables(path: Path) -> set[str]:
    """Of a SQLite file; none of any other."""
    if not path.is_file() or path.read_bytes()[:6] != b"SQLite":
        return set()
    with closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("select name from sqlite_master")}


def damaged_in_sqlite(gateway: Gateway) -> tuple[str, Callable[[], None]]:
    """The name of a damaged journal entry, and what repairs it."""
    (store,) = (path for path in gateway.data_dir.rglob("*") if "entry" in tables(path))
    key = journal_keys(store)[10]
    flip_journal_byte(store, key)
    return key, lambda: flip_journal_byte(store, key)


def damaged_in_log(gateway: Gateway) -> tuple[str, Callable[[], None]]:
    """The same of one in a log: its file and its place are named."""
    (path,) = files_with_records(gateway.data_dir)
    data = memoryview(path.read_bytes())
    header = read_header(data, str(path))
    assert header is not None
    frames = [found for found in read_frames(header, data, str(path)) if isinstance(found, LogFrame)]
    victim = frames[10]
    at = victim.end - SEAL_BYTES - len(victim.entry) // 2
    damage(path, at)
    return f"{object_of(path)} is damaged at {victim.position}", lambda: damage(path, at)


def remove_image(gateway: Gateway) -> None:
    """The image covers old entries; without it all are read."""
    for path in list(gateway.data_dir.rglob("*")):
        if "head" in tables(path):
            path.unlink()


def journal_keys(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        keys = [key for (key,) in db.execute("select key from entry where key like 'journal/%' order by key")]
    return [key for key in keys if key.rpartition("/")[2].isdigit()]


def flip_journal_byte(path: Path, key: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        (value,) = db.execute("select value from entry where key = ?", (key,)).fetchone()
        middle = len(value) // 2
        flipped = value[:middle] + bytes([value[middle] ^ 0xFF]) + value[middle + 1 :]
        db.execute("update entry set value = ? where key = ?", (flipped, key))


@pytest.mark.parametrize("is_in_log", [True, False], ids=["log", "sqlite"])
def test_invariant_10_a_damaged_journal_entry_is_named_and_once_repaired_nothing_is_lost(
    gateway_factory: GatewayFactory, is_in_log: bool
) -> None:
    gateway = gateway_factory()
    gateway.options += (in_log if is_in_log else in_sqlite)(gateway.data_dir)
    loads = loaded(gateway)
    remove_image(gateway)
    key, repair = (damaged_in_log if is_in_log else damaged_in_sqlite)(gateway)
    gateway.log_path.unlink()
    code, sentence = exit_code_and_sentence(gateway)
    assert code not in (0, -6, -9, -11)
    assert key in sentence and "restore" in sentence
    repair()
    gateway.start()
    acks = [ack for load in loads for ack in load.acks]
    assert problems(read_all(gateway.bootstrap, TOPICS), acks) == []


def damage(path: Path, at: int, mask: int = 0xFF) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))


@dataclass(frozen=True, slots=True)
class BatchOnDisk:
    path: Path
    start: int
    """Of the batch in its file."""
    data: bytes
    records: int


def frames_of(gateway: Gateway, partition: int) -> list[list[BatchOnDisk]]:
    """The batches of a partition in each frame of the WAL."""
    found = []
    for path in files_with_records(gateway.data_dir):
        data = memoryview(path.read_bytes())
        for at, size in wal_frames(path):
            frame = read_frame(data[at : at + size])
            assert isinstance(frame, Frame)
            found.append(
                [
                    BatchOnDisk(path, at + batch.start, bytes(batch.data), batch.record_count)
                    for batch in frame.batches
                    if batch.partition == partition
                ]
            )
    return found


def read_some(
    bootstrap: str, place: Place, most: int, timeout_s: float = READ_TIMEOUT_S, start: int = 0
) -> tuple[list[Found], set[int]]:
    """What a reader that checks no CRC itself gets from `start` on: up to `most` records, or up to the first
    error, and its code."""
    consumer = new_consumer(bootstrap, {"check.crcs": False})
    consumer.assign([TopicPartition(*place, start)])
    found: list[Found] = []
    errors: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and len(found) < most and not errors:
        for message in consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                found.append(found_in(message)[1])
            else:
                errors.add(error.code())
    consumer.close()
    return found, errors


def fetch_error(gateway: Gateway, place: Place, offset: int) -> int:
    """The error code that Fetch (version 4) returns for one partition: clients retry without a message."""
    topic, partition = place
    body = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0)
    body += struct.pack(">ih", 1, len(topic)) + topic.encode()
    body += struct.pack(">iiqi", 1, partition, offset, 1 << 20)
    response = raw_exchange(gateway.host, gateway.port, request(ApiKey.FETCH, 4, body))
    assert isinstance(response, bytes)
    # Correlation id, throttle time, one topic with its name, one partition with its index, the error.
    (code,) = struct.unpack_from(">h", response, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(code)


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """One byte of a stored batch was flipped, and the gateway started again."""

    acks: Sequence[Ack]
    """Of all records, by place and offset."""
    place: Place
    path: Path
    at: int
    mask: int
    base: int
    """The first offset in the batch."""
    end: int
    """The offset after it."""

    @property
    def values(self) -> dict[int, bytes]:
        """Of its partition, by offset."""
        return {ack.offset: ack.value for ack in self.acks if ack.place == self.place}


PARTS = [
    *("record", "length"),
    *(pytest.param(part, marks=pytest.mark.full) for part in ("magic", "last offset delta")),
]


def damaged(gateway: Gateway, part: str) -> DamagedBatch:
    """Of a batch that others of its partition follow in the same frame."""
    acks = sorted(
        (ack for load in loaded(gateway, 90, producers=10) for ack in load.acks),
        key=lambda ack: (ack.place, ack.offset),
    )
    batches = max(frames_of(gateway, 1), key=len)
    assert len(batches) > 1, "no two batches of a partition came together"
    victim = batches[(len(batches) - 1) // 2]
    own = [ack for ack in acks if ack.place == ("t", 1) and ack.value in victim.data]
    at, mask = {
        "record": (victim.data.index(own[0].value), 0xFF),
        "magic": (MAGIC_AT, 0xFF),
        "last offset delta": (LAST_OFFSET_DELTA_AT + 3, 1),
        "length": (LENGTH_AT + 3, 1),
    }[part]
    damage(victim.path, victim.start + at, mask)
    gateway.start()
    base = own[0].offset
    return DamagedBatch(acks, ("t", 1), victim.path, victim.start + at, mask, base, base + victim.records)


@pytest.mark.parametrize("part", PARTS)
def test_invariant_10_damaged_bytes_of_a_batch_are_refused_and_spoil_nothing_else(
    part: str, gateway_factory: GatewayFactory
) -> None:
    gateway = gateway_factory()
    case = damaged(gateway, part)
    for place in [("t", 0), ("t", 2), ("t", 3)]:
        own = [ack for ack in case.acks if ack.place == place]
        found, errors = read_some(gateway.bootstrap, place, len(own))
        assert errors == set()
        assert problems({place: found}, own) == []
    # The application hears of it, and the log says which file.
    found, errors = read_some(gateway.bootstrap, case.place, len(case.acks))
    assert errors == {KafkaError.INVALID_MSG}
    assert [record.offset for record in found] == list(range(case.base))
    assert fetch_error(gateway, case.place, case.base) == KafkaError.INVALID_MSG
    assert fetch_error(gateway, case.place, case.end - 1) == KafkaError.INVALID_MSG
    assert case.path.name in gateway.log_tail(1 << 20)
    # A consumer that continues after the batch gets all that follows, each record at its own offset.
    values = case.values
    behind = range(case.end, max(values) + 1)
    later, errors = read_some(gateway.bootstrap, case.place, len(behind), start=case.end)
    assert errors == set()
    assert [(record.offset, record.value) for record in [*found, *later]] == [
        (offset, values[offset]) for offset in [*range(case.base), *behind]
    ]
    assert is_alive(gateway)
    gateway.kill9()
    damage(case.path, case.at, case.mask)
    gateway.start()
    assert problems(read_all(gateway.bootstrap, TOPICS), case.acks) == []


def test_the_java_client_reports_a_damaged_batch_to_the_application_and_reads_on_after_it(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    missing = why_no_java_client()
    if missing:
        pytest.skip(missing)
    gateway = gateway_factory()
    case = damaged(gateway, "magic")
    program = started_jvm("java", tmp_path)
    values = case.values
    file = tmp_path / "records"

    def read(start: int, count: int) -> list[tuple[int, bytes | None]]:
        order = {"bootstrap": gateway.bootstrap, "topic": case.place[0], "partitions": [case.place[1]]}
        limits = {"count": count, "timeout_ms": int(1000 * READ_TIMEOUT_S), "file": str(file)}
        program.order(order="position", **{"from": "offset", "at": start}, **order, **limits)
        program.order(order="read")
        return [(received.offset, received.record.value) for received in read_received(file)]

    try:
        assert read(0, case.base) == [(offset, values[offset]) for offset in range(case.base)]
        # Not the TimeoutException of a client that waits in silence.
        with pytest.raises(RuntimeError, match=f"KafkaException: .*corrupt.* {case.base} "):
            read(case.base, 1)
        behind = range(case.end, max(values) + 1)
        assert read(case.end, len(behind)) == [(offset, values[offset]) for offset in behind]
    finally:
        program.stop()
