"""A disk that is full, read-only or damaged: one clear sentence, and nothing acknowledged is lost."""

import socket
import sqlite3
import struct
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from gateway.wire.apis import ApiKey
from ledger.batch.header import MAGIC_AT
from ledger.formats.wal import Frame, scan_frames
from tests.faults.load import Found, Load, Place, create_topics, found_in, new_consumer, problems, read_all
from tests.faults.small_disk import SmallDisk
from tests.support.gateway import Gateway, GatewayFactory, running_gateway
from tests.support.raw import raw_exchange, request

TOPICS = {"t": 4}
STORE_UNREACHABLE, LOCKED = 4, 5
# What Kafka's clients may try again after (Kafka's error codes; the negative one is the client's own).
RETRIABLE = {KafkaError.KAFKA_STORAGE_ERROR, KafkaError.REQUEST_TIMED_OUT, KafkaError._MSG_TIMED_OUT}


def one_sentence(gateway: Gateway) -> str:
    """What a gateway that refused to start said beside its log of events: one line, no stack trace."""
    lines = gateway.log_tail().strip().splitlines()
    (said,) = (line for line in lines if not line.startswith("{"))
    return said


def exit_code_and_sentence(gateway: Gateway) -> tuple[int, str]:
    gateway.launch()
    code = gateway.wait_for_exit(20)
    return code, one_sentence(gateway)


def produce_without_retry(bootstrap: str, count: int) -> list[int]:
    """The error codes of `count` records, 0 = stored."""
    codes: list[int] = []
    config = {"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "message.timeout.ms": 10_000}
    producer = Producer({**config, "linger.ms": 0, "log_level": 0})

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        codes.append(error.code() if error is not None else 0)

    for number in range(count):
        producer.produce("t", b"single/%d:" % number + bytes(200_000), partition=0, on_delivery=on_delivery)
    producer.flush(20)
    return codes


def is_alive(gateway: Gateway) -> bool:
    url = f"http://{gateway.admin.address}/healthz"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return gateway.is_running() and answer.status == 200


@pytest.mark.timeout(180)
def test_invariant_10_a_full_disk_fails_produce_retriably_and_loses_nothing_acked(
    disk: SmallDisk, gateway_factory: GatewayFactory
) -> None:
    gateway = gateway_factory(data_dir=disk.path / "data")
    gateway.start()
    create_topics(gateway.bootstrap, TOPICS)
    loads = [Load(gateway.bootstrap, f"p{number}", "t", 4, pause_s=0.001).start() for number in range(2)]
    wait_for_acks(loads, 200)
    for _ in range(3):
        disk.fill()
        codes = produce_without_retry(gateway.bootstrap, 3)
        assert len(codes) == 3 and set(codes) <= RETRIABLE
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
    """Until each has got so many more."""
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


def test_invariant_02_a_second_gateway_on_one_data_directory_is_told_who_holds_it(
    gateway: Gateway, gateway_factory: GatewayFactory
) -> None:
    code, sentence = exit_code_and_sentence(gateway_factory(data_dir=gateway.data_dir))
    assert code == LOCKED
    assert str(gateway.ready.pid) in sentence and str(gateway.data_dir) in sentence
    create_topics(gateway.bootstrap, TOPICS)


def test_a_data_directory_is_free_again_after_kill_9(gateway: Gateway) -> None:
    gateway.kill9()
    gateway.start()


def loaded(gateway: Gateway, records: int = 400) -> list[Load]:
    """Records of two producers, and the gateway stopped in good order."""
    gateway.start()
    create_topics(gateway.bootstrap, TOPICS)
    loads = [
        Load(gateway.bootstrap, f"p{number}", "t", 4, 20, most_records=records).start() for number in range(2)
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


def metadata_file(gateway: Gateway) -> Path:
    (found,) = (path for path in gateway.data_dir.rglob("*") if "entry" in tables(path))
    return found


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


def test_invariant_10_a_damaged_journal_entry_is_named_and_once_repaired_nothing_is_lost(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory()
    loads = loaded(gateway)
    store = metadata_file(gateway)
    key = journal_keys(store)[10]
    remove_image(gateway)
    flip_journal_byte(store, key)
    gateway.log_path.unlink()
    code, sentence = exit_code_and_sentence(gateway)
    assert code not in (0, -6, -9, -11)
    assert key in sentence and "restore" in sentence
    flip_journal_byte(store, key)
    gateway.start()
    acks = [ack for load in loads for ack in load.acks]
    assert problems(read_all(gateway.bootstrap, TOPICS), acks) == []


def damage(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def batch_of(gateway: Gateway, value: bytes) -> tuple[Path, int, int]:
    """The WAL file that holds a value, and where in it its batch and the value begin."""
    for path in gateway.data_dir.rglob("*.wal"):
        content = path.read_bytes()
        at = content.find(value)
        if at >= 0:
            frames = [frame for frame in scan_frames(memoryview(content)) if isinstance(frame, Frame)]
            starts = [frame.position + batch.start for frame in frames for batch in frame.batches]
            return path, max(start for start in starts if start < at), at
    raise AssertionError("no WAL file holds the value")


def read_some(
    bootstrap: str, place: Place, most: int, timeout_s: float = 3.0
) -> tuple[list[Found], set[int]]:
    """What a reader gets from offset 0 on: up to so many records, or up to the first error, and its code."""
    consumer = new_consumer(bootstrap)
    consumer.assign([TopicPartition(*place, 0)])
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
    """The error code that Fetch (version 4) answers for one partition: clients try again in silence."""
    topic, partition = place
    body = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0)
    body += struct.pack(">ih", 1, len(topic)) + topic.encode()
    body += struct.pack(">iiqi", 1, partition, offset, 1 << 20)
    answer = raw_exchange(gateway.host, gateway.port, request(ApiKey.FETCH, 4, body))
    assert isinstance(answer, bytes)
    # Correlation id, throttle time, one topic with its name, one partition with its index, the error.
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(code)


def refuse_damaged(gateway: Gateway, part: str) -> None:
    """One byte of one batch is flipped: in its header, or in a record's value."""
    loads = loaded(gateway)
    acks = sorted((ack for load in loads for ack in load.acks), key=lambda ack: (ack.place, ack.offset))
    victim = next(ack for ack in acks if ack.place == ("t", 1) and ack.offset > 50)
    path, batch_at, value_at = batch_of(gateway, victim.value)
    at = batch_at + MAGIC_AT if part == "header" else value_at
    damage(path, at)
    gateway.start()
    for place in [("t", 0), ("t", 2), ("t", 3)]:
        own = [ack for ack in acks if ack.place == place]
        found, errors = read_some(gateway.bootstrap, place, len(own))
        assert errors == set()
        assert problems({place: found}, own) == []
    found, errors = read_some(gateway.bootstrap, victim.place, len(acks))
    assert victim.value not in {record.value for record in found}
    before = [record for record in found if record.offset < victim.offset]
    assert before and [record.offset for record in before] == list(range(len(before)))
    if part == "header":
        # Retriable for clients, which stop there; the gateway says why.
        assert fetch_error(gateway, victim.place, len(before)) == KafkaError.KAFKA_STORAGE_ERROR
        assert path.name in gateway.log_tail(1 << 20) and found == before and errors == set()
    else:
        # The gateway looks at headers alone; the client's CRC check refuses the batch.
        assert errors == {KafkaError._BAD_MSG}
    assert is_alive(gateway)
    gateway.kill9()
    damage(path, at)
    gateway.start()
    assert problems(read_all(gateway.bootstrap, TOPICS), acks) == []


@pytest.mark.parametrize("part", ["record", "header"])
def test_invariant_10_damaged_bytes_of_a_batch_are_refused_and_spoil_nothing_else(
    part: str, gateway_factory: GatewayFactory
) -> None:
    refuse_damaged(gateway_factory(), part)
