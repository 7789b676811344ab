"""The pages of the admin address: metrics that move with the work, and whether a gateway is ready."""

import json
import os
import signal
import struct
import time
import urllib.error
import urllib.request

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.data_files import in_sqlite
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.raw import raw_connection, request

WAIT_S = 20.0
NAMES = {
    "dragoman_requests_total": {"api", "error"},
    "dragoman_request_seconds": {"api"},
    "dragoman_produce_bytes_total": set(),
    "dragoman_fetch_bytes_total": set(),
    "dragoman_produce_records_total": set(),
    "dragoman_fetch_records_total": set(),
    "dragoman_loop_lag_seconds": set(),
    "dragoman_rebalances_total": {"reason"},
    "dragoman_ready": set(),
    "dragoman_not_ready": {"reason"},
    "dragoman_cache_bytes": set(),
    "dragoman_cache_max_bytes": set(),
    "dragoman_cache_read_bytes_total": {"result"},
    "dragoman_live_bytes": set(),
    "dragoman_buffer_bytes": set(),
    "dragoman_connections": set(),
    "dragoman_store_seconds": {"store", "op"},
    "dragoman_request_work_seconds": {"api"},
    "dragoman_store_errors_total": {"store", "op"},
    "dragoman_store_waiting_seconds": {"store", "op"},
    "dragoman_alarms_total": {"reason"},
    "dragoman_topics": set(),
    "dragoman_partitions": set(),
    "dragoman_groups": set(),
    "dragoman_group_members": set(),
    "dragoman_build_info": {"version", "python"},
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
    "process_open_fds": set(),
    "process_max_fds": set(),
    "dragoman_journal_entries_total": {"shard"},
    "dragoman_shard_owner": {"shard"},
    "dragoman_follower_lag_entries": set(),
    "dragoman_live_runs": set(),
    "dragoman_orphan_objects": set(),
    "dragoman_inline_bytes_total": set(),
    "dragoman_inline_entries": set(),
    "dragoman_merge_running": set(),
    "dragoman_small_runs": set(),
    "dragoman_pins": set(),
    "dragoman_oldest_pin_seconds": set(),
    "dragoman_clock_behind_seconds": set(),
    "dragoman_disk_free_bytes": set(),
    "dragoman_disk_refused_batches_total": set(),
}


def page(gateway: Gateway, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{gateway.admin.address}{path}", timeout=WAIT_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(gateway: Gateway) -> dict[str, float]:
    """Each line of the metrics page, name with labels, and its value."""
    lines = page(gateway, "/metrics")[1].splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def produce_and_consume(gateway: Gateway, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for value in values:
        producer.produce("t", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "never-joined", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert len(consumer.consume(len(values), WAIT_S)) == len(values)
    finally:
        consumer.close()


def labels_of(sample: str) -> set[str]:
    inside = sample.partition("{")[2].rstrip("}")
    return {part.partition("=")[0] for part in inside.split(",") if part} - {"le"}


def test_every_metric_has_its_name_and_its_labels(gateway: Gateway) -> None:
    produce_and_consume(gateway, [b"x"])
    text = page(gateway, "/metrics")[1]
    found = samples(gateway)
    for name, labels in NAMES.items():
        assert f"# TYPE {name} " in text or f"# TYPE {name.removesuffix('_total')} " in text, name
        lines = [key for key in found if key.partition("{")[0] in (name, f"{name}_count", f"{name}_bucket")]
        assert lines and all(labels_of(line) == labels for line in lines), name
    assert not [name for name in found if "topic" in name.partition("{")[2].split("=")[0]]


def test_the_metrics_of_a_gateway_move_with_its_work(gateway: Gateway) -> None:
    before = samples(gateway)
    produce_and_consume(gateway, [bytes(1000)] * 10)
    after = samples(gateway)

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    assert grown('dragoman_requests_total{api="PRODUCE",error="NONE"}') >= 1
    assert grown('dragoman_request_seconds_count{api="PRODUCE"}') >= 1
    assert 10_000 < grown("dragoman_produce_bytes_total") < 12_000
    assert grown("dragoman_fetch_bytes_total") >= grown("dragoman_produce_bytes_total")
    assert grown('dragoman_journal_entries_total{shard="0"}') >= 2
    assert after['dragoman_shard_owner{shard="0"}'] == 1
    assert after["dragoman_follower_lag_entries"] == 0
    assert grown("dragoman_live_runs") >= 1
    assert grown('dragoman_store_seconds_count{op="put",store="metadata"}') >= 2
    assert grown('dragoman_store_seconds_sum{op="put",store="metadata"}') > 0
    assert not [name for name in after if name.startswith("dragoman_store_errors") and after[name]]
    assert grown("process_cpu_seconds_total") > 0
    assert grown("dragoman_produce_records_total") == 10
    assert grown("dragoman_fetch_records_total") >= 10
    assert grown("dragoman_live_bytes") == grown("dragoman_produce_bytes_total")
    assert grown('dragoman_cache_read_bytes_total{result="hit"}') >= grown("dragoman_produce_bytes_total")
    assert 0 < after["dragoman_cache_bytes"] < after["dragoman_cache_max_bytes"]


def test_where_records_are_not_in_the_log_their_writes_are_measured_apart(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory()
    gateway.options += in_sqlite(gateway.data_dir)
    gateway.start()
    produce_and_consume(gateway, [bytes(1000)] * 10)
    found = samples(gateway)
    assert found['dragoman_store_seconds_count{op="write",store="segments"}'] >= 1
    assert found['dragoman_store_seconds_sum{op="write",store="segments"}'] > 0


def test_a_consumer_of_what_the_cache_does_not_have_misses_it(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(["--set", "cache.run_bytes=0"])
    gateway.start()
    produce_and_consume(gateway, [bytes(1000)] * 10)
    found = samples(gateway)
    assert found['dragoman_cache_read_bytes_total{result="miss"}'] >= found["dragoman_produce_bytes_total"]
    assert found['dragoman_cache_read_bytes_total{result="hit"}'] == 0


def test_an_event_loop_that_stood_still_is_seen(gateway: Gateway) -> None:
    def late() -> float:
        found = samples(gateway)
        name = "dragoman_loop_lag_seconds"
        return found[f"{name}_count"] - found[f'{name}_bucket{{le="0.5"}}']

    before = late()
    os.kill(gateway.ready.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(gateway.ready.pid, signal.SIGCONT)
    deadline = time.monotonic() + WAIT_S
    while late() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_connections_are_counted_while_they_are_there(gateway: Gateway) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    producer.list_topics(timeout=WAIT_S)
    # The client leaves its first connection for one to the broker that the metadata name.
    deadline = time.monotonic() + WAIT_S
    while samples(gateway)["dragoman_connections"] < 1:
        assert time.monotonic() < deadline
    assert samples(gateway)["dragoman_buffer_bytes"] >= 0


def test_a_refused_request_is_counted_under_its_error(gateway: Gateway) -> None:
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "x", "enable.auto.commit": False}
    )
    produce_and_consume(gateway, [b"x"])
    try:
        consumer.assign([TopicPartition("t", 0, 1_000_000)])
        name = 'dragoman_requests_total{api="FETCH",error="OFFSET_OUT_OF_RANGE"}'
        deadline = time.monotonic() + WAIT_S
        while samples(gateway).get(name, 0.0) < 1:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
    finally:
        consumer.close()


def fetch(wait_ms: int) -> bytes:
    """Fetch version 4 of partition 0 of t from offset 1, where nothing is."""
    head = struct.pack(">iiiibi", -1, wait_ms, 1, 1 << 20, 0, 1)
    return request(1, 4, head + struct.pack(">h", 1) + b"t" + struct.pack(">iiqi", 1, 0, 1, 1 << 20))


def test_clients_that_leave_during_a_long_poll_are_no_errors_of_the_gateway(gateway: Gateway) -> None:
    produce_and_consume(gateway, [b"x"])
    before = samples(gateway)
    for _ in range(3):
        with raw_connection(gateway.host, gateway.port) as connection:
            connection.send(fetch(30_000))
            time.sleep(0.2)
    cancelled = 'dragoman_requests_total{api="FETCH",error="CANCELLED"}'
    deadline = time.monotonic() + WAIT_S
    while (after := samples(gateway)).get(cancelled, 0.0) - before.get(cancelled, 0.0) < 3:
        assert time.monotonic() < deadline
    assert not [name for name in after if "UNKNOWN_SERVER_ERROR" in name]


def test_the_wait_of_a_long_poll_is_no_work(gateway: Gateway) -> None:
    produce_and_consume(gateway, [b"x"])
    before = samples(gateway)
    polls = 5
    with raw_connection(gateway.host, gateway.port) as connection:
        for _ in range(polls):
            connection.send(fetch(500))
            assert isinstance(connection.read_frame(), bytes)
    after = samples(gateway)

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown('dragoman_request_seconds_sum{api="FETCH"}') >= polls * 0.49
    assert grown('dragoman_request_work_seconds_count{api="FETCH"}') == polls
    # 10 ms each, on a machine that does other things besides.
    assert grown('dragoman_request_work_seconds_sum{api="FETCH"}') < polls * 0.05


def test_the_wait_for_a_group_is_no_work_and_groups_and_members_are_counted(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(["--set", "groups.group.initial.rebalance.delay.ms=1000"])
    gateway.start()
    produce_and_consume(gateway, [b"x"])
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    found = samples(gateway)
    assert found['dragoman_request_seconds_sum{api="JOIN_GROUP"}'] > 0.9
    assert found['dragoman_request_work_seconds_sum{api="JOIN_GROUP"}'] < 0.5
    assert (found["dragoman_topics"], found["dragoman_partitions"]) == (1, 1)
    assert (found["dragoman_groups"], found["dragoman_group_members"]) == (1, 1)
    consumer.close()
    found = samples(gateway)
    assert (found["dragoman_groups"], found["dragoman_group_members"]) == (1, 0)


def test_a_ready_gateway_says_so(gateway: Gateway) -> None:
    assert page(gateway, "/healthz") == (200, '{"status": "ok"}')
    assert json.loads(page(gateway, "/readyz")[1]) == {"ready": True, "reasons": []}
    assert json.loads(page(gateway, "/version")[1])["version"]
    found = samples(gateway)
    assert found["dragoman_ready"] == 1
    assert not [name for name in found if name.startswith("dragoman_not_ready") and found[name]]


def test_a_full_disk_is_a_reason_and_the_process_is_healthy_all_the_same(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(["--set", f"storage.min_free_bytes={2**40}"])
    gateway.start()
    status, text = page(gateway, "/readyz")
    assert status == 503
    (reason,) = json.loads(text)["reasons"]
    assert reason["reason"] == "disk" and "storage.min_free_bytes" in reason["detail"]
    found = samples(gateway)
    assert found["dragoman_ready"] == 0
    assert [name for name in found if name.startswith("dragoman_not_ready") and found[name]] == [
        'dragoman_not_ready{reason="disk"}'
    ]
    assert page(gateway, "/healthz")[0] == 200


def test_debug_shards_shows_the_state_of_the_shard(gateway: Gateway) -> None:
    produce_and_consume(gateway, [b"x"] * 3)
    (shard,) = json.loads(page(gateway, "/debug/shards")[1])["shards"]
    assert shard["shard"] == 0 and shard["owner"] == 1 and shard["epoch"] >= 1
    assert shard["entries"] == samples(gateway)['dragoman_journal_entries_total{shard="0"}'] >= 3
    assert shard["topics"] == shard["partitions"] == 1
    assert shard["runs"] >= 1 and shard["objects"] >= 1
    assert shard["garbage_objects"] == shard["draining_partitions"] == 0
    assert shard["unknown_entry"] is None and shard["cluster_id"]
    deadline = time.monotonic() + WAIT_S
    while json.loads(page(gateway, "/debug/shards")[1])["shards"][0]["image_entries"] is None:
        assert time.monotonic() < deadline, "the image was never written"
        time.sleep(0.2)
