"""`dragoman ledger adopt`: a bucket as KafScale writes it is consumed at its offsets, and stays as it was."""

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import confluent_kafka as ck
import pytest

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from ledger.batch.records import Record, build_batch
from ledger.formats.kafscale import KafScalePartition, segment_keys
from ledger.formats.segment import SegmentBatch, encode_segment
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.topics import create_topics
from tests.support.versions import ROOT
from tests.support.weed import REGION

WAIT_S = 200.0
START_S = 200.0
PARTITION_EOF = -191
"""Of librdkafka."""
STAMP = 1_600_000_000_000
"""Years before the default retention would delete it."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def adopt(gateway: Gateway, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("ledger", "adopt", source, "--data-dir", str(gateway.data_dir), *arguments)


def segment(topic: str, partition: int, *bases: int) -> dict[str, bytes]:
    """A segment with two records at each of these offsets, and its index."""
    batches = [
        SegmentBatch(
            base,
            build_batch(
                [Record(at, at, b"k%d" % (base + at), b"v%d" % (base + at), ()) for at in (0, 1)],
                base_timestamp=STAMP + base,
            ),
        )
        for base in bases
    ]
    encoded = encode_segment(batches, bases[0], STAMP)
    key, index_key = segment_keys(KafScalePartition("default", topic, partition), bases[0])
    return {key: b"".join(encoded.buffers), index_key: encoded.index}


def kafscale_bucket() -> dict[str, bytes]:
    """Two topics, one with a gap and an empty partition; and what else is in such a bucket."""
    return {
        **segment("orders", 0, 100, 102, 104),
        **segment("orders", 0, 110, 112),
        **segment("orders", 2, 0),
        **segment("payments", 0, 7),
        "__health/probe": b"ok",
    }


def written(directory: Path, objects: dict[str, bytes]) -> str:
    for key, data in objects.items():
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return f"file:{directory}"


def consumed(gateway: Gateway, topic: str, partition: int, offset: int) -> Sequence[tuple[int, bytes, int]]:
    """(offset, value, timestamp) from an offset to the end."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[int, bytes, int]] = []
    try:
        consumer.assign([ck.TopicPartition(topic, partition, offset)])
        for _ in range(1_000):
            message = consumer.poll(30.0)
            assert message is not None, found
            if (error := message.error()) is not None:
                assert error.code() == PARTITION_EOF, error
                return found
            offset_of, value = message.offset(), message.value()
            assert offset_of is not None and value is not None
            found.append((offset_of, value, message.timestamp()[1]))
    finally:
        consumer.close()
    raise AssertionError(found)


def expected(*offsets: int) -> list[tuple[int, bytes, int]]:
    return [(offset, b"v%d" % offset, STAMP + offset) for offset in offsets]


def produce(gateway: Gateway, topic: str, value: bytes) -> int:
    offsets: list[int] = []
    producer = ck.Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})

    def delivered(error: object, message: ck.Message) -> None:
        offset = message.offset()
        assert error is None and offset is not None, error
        offsets.append(offset)

    producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(60.0) == 0
    (offset,) = offsets
    return offset


@pytest.fixture
def gateway(gateway_factory: GatewayFactory) -> Gateway:
    started = gateway_factory(["--set", "housekeeping.merge_runs=0"])
    started.start(START_S)
    return started


ORDERS = expected(*range(100, 106), *range(110, 114))


@pytest.mark.timeout(900)
def test_a_directory_is_adopted_consumed_produced_to_and_merged(gateway: Gateway, tmp_path: Path) -> None:
    objects = kafscale_bucket()
    source = written(tmp_path / "old", objects)
    tried = adopt(gateway, source, "--dry-run", "--json")
    assert tried.returncode == 0, tried.stderr
    assert [(topic["topic"], topic["partitions"]) for topic in json.loads(tried.stdout)["planned"]] == [
        ("orders", 3),
        ("payments", 1),
    ]
    done = adopt(gateway, source)
    assert done.returncode == 0, done.stderr
    assert "Adopted 2 topics with 4 segments" in done.stdout
    assert consumed(gateway, "orders", 0, 100) == ORDERS
    # From within the gap, and an empty partition.
    assert consumed(gateway, "orders", 0, 107) == ORDERS[6:]
    assert consumed(gateway, "orders", 1, 0) == []
    assert consumed(gateway, "payments", 0, 7) == expected(7, 8)
    assert produce(gateway, "orders", b"new") == 114
    again = adopt(gateway, source)
    assert again.returncode == 0 and "2 topics adopted before." in again.stderr, again.stderr
    gateway.kill9()
    gateway.start(START_S)
    assert consumed(gateway, "orders", 0, 100)[:10] == ORDERS


@pytest.mark.timeout(900)
def test_an_adopted_ledger_is_audited_and_merged_and_then_its_bucket_may_go(
    gateway: Gateway, tmp_path: Path
) -> None:
    objects = kafscale_bucket()
    source = written(tmp_path / "old", objects)
    done = adopt(gateway, source)
    assert done.returncode == 0, done.stderr
    assert produce(gateway, "orders", b"new") == 114
    # What works on a ledger without a gateway knows of them.
    gateway.stop()
    stores = ["--data-dir", str(gateway.data_dir), "--json"]
    shown = json.loads(run("ledger", "show", *stores).stdout)["objects"]
    segments = sum(len(data) for key, data in objects.items() if key.endswith(".kfs"))
    assert shown["adopted_bytes"] == {source: segments} and not shown["orphans"]
    for command in ("audit", "doctor"):
        checked = run(command, *stores)
        assert checked.returncode == 0, (command, checked.stdout, checked.stderr)
    (lost, *_) = sorted(path for path in (tmp_path / "old").rglob("*.kfs"))
    data = lost.read_bytes()
    lost.unlink()
    for command in ("audit", "doctor"):
        checked = run(command, *stores)
        assert checked.returncode == 3 and lost.name in checked.stdout, (command, checked.stdout)
    lost.write_bytes(data)
    gateway.start(START_S)
    # A merge copies them, and then the bucket may go.
    merged = run("compact", "segments", "--data-dir", str(gateway.data_dir), "--json")
    assert merged.returncode == 0, merged.stderr
    assert json.loads(merged.stdout)["summary"]["damages"] == []
    old = tmp_path / "old"
    kept = {str(path.relative_to(old)): path.read_bytes() for path in old.rglob("*.*")}
    assert kept == {key: data for key, data in objects.items() if "." in key}
    for path in old.rglob("*.kfs"):
        path.unlink()
    assert [each[:2] for each in consumed(gateway, "orders", 0, 100)] == [
        *(each[:2] for each in ORDERS),
        (114, b"new"),
    ]
    assert consumed(gateway, "payments", 0, 7) == expected(7, 8)


@contextmanager
def forwarding(port: int) -> Iterator[int]:
    """A port that leads to another one on loopback until this ends; then it refuses connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection(("127.0.0.1", port))
                sockets.extend((here, there))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        # A thread that waits in accept() would keep it open.
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        for each in (listening, *sockets):
            with suppress(OSError):
                each.close()


@pytest.mark.timeout(900)
def test_while_an_adopted_bucket_is_out_of_reach_only_its_offsets_are(
    gateway_factory: GatewayFactory, moto_s3: S3Server
) -> None:
    # Its environment has the credentials by now.
    gateway = gateway_factory(["--set", "housekeeping.merge_runs=0"])
    gateway.start(START_S)
    client = moto_s3.boto3_client()
    for key, data in kafscale_bucket().items():
        client.put_object(Bucket=BUCKET, Key=f"old/{key}", Body=data)
    with forwarding(int(moto_s3.endpoint.rpartition(":")[2])) as port:
        url = f"s3://{BUCKET}/old?endpoint=http://127.0.0.1:{port}&region={REGION}"
        done = adopt(gateway, url)
        assert done.returncode == 0, done.stderr
        assert consumed(gateway, "orders", 0, 100) == ORDERS
        assert produce(gateway, "orders", b"new") == 114
    gateway.kill9()
    gateway.start(START_S)
    assert [offset for offset, _, _ in consumed(gateway, "orders", 0, 114)] == [114]
    assert not first_of(gateway, "orders", 100)
    with urllib.request.urlopen(f"http://{gateway.admin.address}/readyz", timeout=60.0) as page:
        ready = json.load(page)
    assert ready["ready"] is True
    assert [(each["reason"], url in each["detail"]) for each in ready["warnings"]] == [
        ("adopted_place", True)
    ]
    assert produce(gateway, "orders", b"newer") == 115


def first_of(gateway: Gateway, topic: str, offset: int) -> bytes:
    """What a fetch gets that has little time."""
    with Client(Address(gateway.host, gateway.port), timeout=60.0) as client:
        partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        fetch = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic, partitions=[partition])])
        (found,) = client.ask(ApiKey.FETCH, 11, fetch).responses[0].partitions
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR, found
    return bytes(found.records or b"")


@pytest.mark.timeout(900)
def test_what_cannot_be_adopted_is_one_sentence_and_changes_nothing(gateway: Gateway, tmp_path: Path) -> None:
    damaged = segment("damaged", 0, 5)
    (key,) = [key for key in damaged if key.endswith(".kfs")]
    damaged[key] = damaged[key][:-20] + b"x" + damaged[key][-19:]
    overlapping = {**segment("o", 0, 0, 2), **segment("o", 0, 3)}
    alone = {key: data for key, data in segment("alone", 0, 4).items() if key.endswith(".kfs")}
    create_topics(gateway.bootstrap, {"payments": 1})
    produce(gateway, "payments", b"mine")
    whole = kafscale_bucket()
    for name, objects, arguments, reason in (
        ("damaged", {**whole, **damaged}, (), "nothing is adopted"),
        ("overlapping", overlapping, (), "has already"),
        ("taken", whole, (), "the topic payments has records of its own"),
        ("namespace", whole, ("--namespace", "prod"), "no segment in namespace prod"),
        ("topics", whole, ("--topics", "orders,absent"), "no segment of absent"),
    ):
        failed = adopt(gateway, written(tmp_path / name, objects), *arguments)
        assert failed.returncode == 1, (name, failed.stderr)
        (line,) = [line for line in failed.stderr.splitlines() if " verified, " not in line]
        assert failed.stdout == "" and reason in line
    topics = run("topics", "list", "--bootstrap", gateway.bootstrap, "--json")
    assert [topic["name"] for topic in json.loads(topics.stdout)] == ["payments"], topics.stdout
    left_out = adopt(gateway, written(tmp_path / "alone", {**segment("alone", 0, 0), **alone}))
    assert left_out.returncode == 0, left_out.stderr
    assert "1 segment without an index was left out." in left_out.stderr
    assert consumed(gateway, "alone", 0, 0) == expected(0, 1)


def whole(gateway: Gateway, topic: str) -> Sequence[tuple[object, ...]]:
    """All that a consumer sees of the records of partition 0."""
    consumer = ck.Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    found: list[tuple[object, ...]] = []
    try:
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(30.0)
            assert message is not None, found
            if (error := message.error()) is not None:
                assert error.code() == PARTITION_EOF, error
                return found
            found.append(
                (message.offset(), message.key(), message.value(), message.headers(), message.timestamp())
            )
    finally:
        consumer.close()


@pytest.mark.timeout(900)
def test_what_is_exported_is_adopted_elsewhere_with_all_that_a_consumer_sees(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    first = gateway_factory([])
    first.start(START_S)
    create_topics(first.bootstrap, {"t": 1})
    for codec in ("none", "zstd", "gzip"):
        producer = ck.Producer({"bootstrap.servers": first.bootstrap, "compression.type": codec})
        for at in range(100):
            headers: list[tuple[str, str | bytes | None]] = [("h", b"%d" % at), ("codec", codec)]
            producer.produce("t", b"v" * at, b"k%d" % at, partition=0, timestamp=STAMP + at, headers=headers)
        assert producer.flush(60.0) == 0
    before = whole(first, "t")
    assert len(before) == 300
    source = f"file:{tmp_path / 'between'}"
    exported = run("ledger", "export", source, "--data-dir", str(first.data_dir))
    assert exported.returncode == 0, exported.stderr
    first.stop()
    second = gateway_factory([])
    second.start(START_S)
    second.stop()
    # Without a running gateway one is started for the job.
    done = adopt(second, source)
    assert done.returncode == 0, done.stderr
    second.start(START_S)
    assert whole(second, "t") == before
