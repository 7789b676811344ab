"""The console's data, as `curl` gets them: what is shown, what is bounded, and who is refused."""

import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import Authority, Issued, principal_of
from tests.support.command import run_here
from tests.support.gateway import Gateway, GatewayFactory, GatewayNotReady
from tests.support.ports import with_port

WAIT_S = 20.0
TOKEN = "token-of-the-console-0123456789"
OPEN = ("--set", "admin.read_records=true", "--set", "admin.write=true")


def call(
    gateway: Gateway, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and decoded JSON."""
    data = None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"} if data is not None else {}
    request = urllib.request.Request(
        f"http://{gateway.admin.address}/api/{path}", data, {**kind, **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def found(gateway: Gateway, path: str, **query: object) -> Any:
    status, page = call(gateway, f"{path}?{urllib.parse.urlencode(query)}")
    assert status == 200, page
    return page


def denied(gateway: Gateway, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    status, page = call(gateway, path, headers=headers)
    return status, page["error"]["reason"]


def started(factory: GatewayFactory, *options: str) -> Gateway:
    gateway = factory(options)
    gateway.start()
    return gateway


def create(gateway: Gateway, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for done in admin.create_topics([NewTopic(name, count) for name, count in partitions.items()]).values():
        done.result(WAIT_S)


def produce(gateway: Gateway, topic: str, count: int, codec: str = "none", partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "compression.type": codec})
    for i in range(count):
        producer.produce(
            topic,
            f"{codec}-value-{i}".encode(),
            f"key-{i}".encode(),
            partition,
            timestamp=1_000_000 + i,
            headers=[("n", str(i).encode())],
        )
    assert producer.flush(WAIT_S) == 0


def commit(gateway: Gateway, group: str, topic: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group})
    try:
        parts = [TopicPartition(topic, int(name[1:]), offset) for name, offset in offsets.items()]
        consumer.commit(offsets=parts, asynchronous=False)
    finally:
        consumer.close()


def offsets_of(records: list[Any]) -> list[int]:
    return [record["offset"] for record in records]


def test_topics_are_found_by_a_part_of_their_name_with_their_sizes(gateway: Gateway) -> None:
    create(gateway, orders=3, returns=1, Other=1)
    produce(gateway, "returns", 5)
    page = found(gateway, "topics", search="R", sort="records", order="desc", rows=2)
    assert [row["name"] for row in page["rows"]] == ["returns", "orders"] or page["matching"] == 3
    first = page["rows"][0]
    assert (first["name"], first["partitions"], first["records"]) == ("returns", 1, 5)
    assert first["bytes"] > 100
    assert (page["matching"], page["total"]) == (3, 3)
    assert [row["name"] for row in found(gateway, "topics", search="ret")["rows"]] == ["returns"]


def test_the_lag_of_a_group_is_the_records_after_its_offsets(gateway: Gateway) -> None:
    create(gateway, t=2)
    produce(gateway, "t", 100, partition=0)
    produce(gateway, "t", 10, partition=1)
    commit(gateway, "g", "t", p0=30, p1=10)
    (row,) = found(gateway, "groups")["rows"]
    assert (row["name"], row["state"], row["topics"], row["lag"]) == ("g", "Empty", 1, 70)
    page = found(gateway, "group", name="g")
    assert [(one["partition"], one["offset"], one["end"], one["lag"]) for one in page["offsets"]] == [
        (0, 30, 100, 70),
        (1, 10, 10, 0),
    ]


def test_transactions_are_sorted_by_their_age(gateway: Gateway) -> None:
    create(gateway, t=2)
    producers = []
    for name in ("older", "newer", "ended"):
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": name})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for partition in range(2 if name == "older" else 1):
            producer.produce("t", b"x", partition=partition)
        assert producer.flush(WAIT_S) == 0
        if name == "ended":
            producer.abort_transaction(WAIT_S)
        producers.append(producer)
    page = found(gateway, "transactions", sort="open", order="desc")
    rows = [(row["name"], row["state"], row["partitions"], row["open"] is None) for row in page["rows"]]
    assert rows == [
        ("older", "Ongoing", 2, False),
        ("newer", "Ongoing", 1, False),
        ("ended", "CompleteAbort", 0, True),
    ]
    assert page["rows"][0]["timeout"] == 60_000
    assert [row["name"] for row in found(gateway, "transactions", search="NEW")["rows"]] == ["newer"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_shown(gateway_factory: GatewayFactory, codec: str) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=1)
    produce(gateway, "t", 40, codec)
    page = found(gateway, "messages", topic="t", **{"from": "offset"}, start=7, limit=3)
    assert offsets_of(page["records"]) == [7, 8, 9]
    first = page["records"][0]
    assert (first["key"]["text"], first["value"]["text"]) == ("key-7", f"{codec}-value-7")
    assert first["headers"] == [{"name": "n", "value": {"text": "7", "size": 1, "isCut": False}}]
    assert first["timestamp"] == 1_000_007
    assert first["batch"]["codec"] == codec
    assert page["next"] == {"0": 10} and not page["isComplete"]


def test_records_are_found_by_time_key_value_and_header(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=2)
    produce(gateway, "t", 300, "lz4", 0)
    produce(gateway, "t", 5, "none", 1)
    all_of = {"topic": "t", "from": "earliest", "limit": 200}
    by_key = found(gateway, "messages", **all_of, key="key-29")["records"]
    assert [(one["partition"], one["offset"]) for one in by_key] == [
        (0, 29),
        *((0, 290 + i) for i in range(10)),
    ]
    assert offsets_of(found(gateway, "messages", **all_of, value="lz4-value-17")["records"])[0] == 17
    assert offsets_of(found(gateway, "messages", **all_of, header="n=299")["records"]) == [299]
    assert found(gateway, "messages", **all_of, header="m")["records"] == []
    hexadecimal = "0x" + b"key-299".hex()
    assert offsets_of(found(gateway, "messages", **all_of, key=hexadecimal)["records"]) == [299]
    late = found(gateway, "messages", topic="t", **{"from": "time"}, start=1_000_298, limit=10)
    assert offsets_of(late["records"]) == [298, 299] and late["isComplete"]
    newest = found(gateway, "messages", topic="t", partition=0, limit=5)
    assert offsets_of(newest["records"]) == [295, 296, 297, 298, 299]


def test_a_search_goes_on_where_the_one_before_it_ended(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=3)
    for partition in range(3):
        produce(gateway, "t", 50, "zstd", partition)
    seen, page = [], found(gateway, "messages", topic="t", **{"from": "earliest"}, limit=30)
    while True:
        seen += [(one["partition"], one["offset"]) for one in page["records"]]
        if page["isComplete"]:
            break
        at = ",".join(f"{index}:{offset}" for index, offset in page["next"].items())
        page = found(gateway, "messages", topic="t", at=at, limit=30)
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(50)]


def test_bytes_that_are_no_text_are_shown_as_digits_and_cut(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=1)
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    producer.produce("t", b"\xff\x00" * 5_000, None)
    producer.produce("t", "\u00e9".encode() * 5_000, b"\x1b[2J")
    producer.produce("t", None, b"")
    assert producer.flush(WAIT_S) == 0
    records = found(gateway, "messages", topic="t", bytes=1001)["records"]
    assert records[0]["value"] == {"hex": ("ff00" * 501)[:2002], "size": 10_000, "isCut": True}
    assert records[0]["key"] is None
    assert records[1]["value"] == {"text": "\u00e9" * 500, "size": 10_000, "isCut": True}
    assert records[1]["key"] == {"hex": "1b5b324a", "size": 4, "isCut": False}
    assert records[2]["value"] is None and records[2]["key"]["size"] == 0


def test_records_are_shown_only_with_the_setting(gateway: Gateway) -> None:
    create(gateway, t=1)
    produce(gateway, "t", 1)
    assert denied(gateway, "messages?topic=t") == (403, "read_records")
    position = found(gateway, "position", topic="t", offset=0)
    assert len(position["batch"]["dump"]) == 2 * 61
    assert b"none-value".hex() not in position["batch"]["dump"]


def test_an_offset_leads_to_the_bytes_in_its_object(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=2)
    for _ in range(4):
        produce(gateway, "t", 25, partition=1)
    page = found(gateway, "position", topic="t", partition=1, offset=60)
    run, batch, stored = page["run"], page["batch"], page["object"]
    assert run["base"] <= batch["baseOffset"] <= 60 <= batch["lastOffset"] <= run["last"]
    assert run["start"] <= batch["start"] < batch["end"] <= run["start"] + run["size"]
    assert batch["crcMatches"] and batch["storedBaseOffset"] == 0
    # The journal and its files may be moved; wherever the object is, these are its bytes.
    (file,) = [
        path for path in Path(gateway.data_dir).rglob("*") if path.name == Path(stored["locator"]).name
    ]
    data = file.read_bytes()[batch["start"] : batch["end"]]
    assert data.hex().startswith(batch["dump"]) and len(data) == batch["size"]
    assert "high watermark" in found(gateway, "position", topic="t", partition=1, offset=100)["reason"]


def test_a_reset_is_what_its_preview_showed(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=2)
    produce(gateway, "t", 100, partition=0)
    produce(gateway, "t", 20, partition=1)
    commit(gateway, "g", "t", p0=90, p1=15)

    def preview(**wanted: object) -> Any:
        status, page = call(gateway, "group/reset/preview", {"group": "g", **wanted})
        assert status == 200, page
        return page

    def afters(page: Any) -> list[tuple[int, int, int]]:
        return [(row["partition"], row["before"], row["after"]) for row in page["rows"]]

    assert afters(preview(to="earliest")) == [(0, 90, 0), (1, 15, 0)]
    assert afters(preview(to="latest", topics=["t"])) == [(0, 90, 100), (1, 15, 20)]
    assert afters(preview(to="shift", value=-20)) == [(0, 90, 70), (1, 15, 0)]
    assert afters(preview(to="offset", value=50)) == [(0, 90, 50), (1, 15, 20)]
    page = preview(to="time", value=1_000_010)
    assert afters(page) == [(0, 90, 10), (1, 15, 10)]
    # Records that come after the preview change nothing of it.
    produce(gateway, "t", 5, partition=0)
    status, done = call(gateway, "group/reset", {"preview": page["preview"]})
    assert status == 200 and [row["error"] for row in done["rows"]] == [None, None]
    assert [row["offset"] for row in found(gateway, "group", name="g")["offsets"]] == [10, 10]
    assert call(gateway, "group/reset", {"preview": page["preview"]})[0] == 409
    (event,) = [
        json.loads(line)
        for line in gateway.log_path.read_text().splitlines()
        if '"client_id": "console"' in line
    ]
    assert event["event"] == "offsets.reset" and event["offsets"] == "t-0: 90 to 10, t-1: 15 to 10"


def test_a_reset_is_refused_once_the_group_has_gone_on(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    create(gateway, t=1)
    produce(gateway, "t", 10)
    commit(gateway, "g", "t", p0=5)
    _, page = call(gateway, "group/reset/preview", {"group": "g", "to": "earliest"})
    commit(gateway, "g", "t", p0=6)
    status, refusal = call(gateway, "group/reset", {"preview": page["preview"]})
    assert (status, refusal["error"]["reason"]) == (409, "not_possible")
    assert found(gateway, "group", name="g")["offsets"][0]["offset"] == 6


def test_the_offsets_of_a_group_with_members_are_not_reset(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN, "--set", "groups.group.initial.rebalance.delay.ms=0")
    create(gateway, t=1)
    produce(gateway, "t", 10)
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["t"])
        assert len(consumer.consume(10, WAIT_S)) == 10
        consumer.commit(asynchronous=False)
        page = found(gateway, "group", name="g")
        assert (page["state"], page["memberCount"], page["members"][0]["clientId"]) == (
            "Stable",
            1,
            "rdkafka",
        )
        status, refusal = call(gateway, "group/reset/preview", {"group": "g", "to": "earliest"})
        assert status == 409 and "stop its consumers" in refusal["error"]["detail"]
    finally:
        consumer.close()


def test_nothing_is_changed_without_the_setting(gateway: Gateway) -> None:
    create(gateway, t=1)
    commit(gateway, "g", "t", p0=0)
    for path in ("group/reset/preview", "group/reset"):
        status, page = call(gateway, path, {"group": "g", "to": "earliest", "preview": "x"})
        assert (status, page["error"]["reason"]) == (403, "write")


def test_requests_that_another_site_can_cause_are_refused(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, *OPEN)
    assert denied(gateway, "topics", {"Host": "evil.example"}) == (421, "host")
    assert denied(gateway, "topics", {"Origin": "http://evil.example"}) == (403, "origin")
    assert denied(gateway, "topics", {"Sec-Fetch-Site": "cross-site"}) == (403, "origin")
    status, page = call(gateway, "group/reset", {"preview": "x"}, {"Content-Type": "text/plain"})
    assert (status, page["error"]["reason"]) == (415, "content_type")
    own = {"Origin": f"http://{gateway.admin.address}", "Sec-Fetch-Site": "same-origin"}
    assert call(gateway, "topics", headers=own)[0] == 200
    page_of = urllib.request.Request(f"http://{gateway.admin.address}/", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(page_of, timeout=WAIT_S)
    # What probes and Prometheus read has no such rule: they come under names of their own.
    health = urllib.request.Request(
        f"http://{gateway.admin.address}/healthz", headers={"Host": "pod.example"}
    )
    assert urllib.request.urlopen(health, timeout=WAIT_S).status == 200


def test_beyond_loopback_data_need_the_token_which_no_log_has(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    closed = gateway_factory(["--admin", with_port("0.0.0.0:0"), *OPEN])
    closed.start()
    loopback = replace(closed.admin, host="127.0.0.1").address
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(f"http://{loopback}/api/topics", timeout=WAIT_S)
    assert refusal.value.code == 403
    assert json.loads(refusal.value.read())["error"]["reason"] == "closed"
    with urllib.request.urlopen(f"http://{loopback}/api/session", timeout=WAIT_S) as session:
        assert json.loads(session.read())["isClosed"]
    open_to_some = gateway_factory(["--set", f"admin.token_file={file}", *OPEN])
    open_to_some.start()
    assert denied(open_to_some, "topics") == (401, "no_token")
    wrong = {"Authorization": "Bearer wrong-token-of-some-length"}
    assert denied(open_to_some, "topics", wrong) == (401, "token")
    assert call(open_to_some, "topics", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    log = open_to_some.log_tail(1_000_000)
    assert "console.denied" in log
    assert TOKEN not in log and "wrong-token" not in log


def test_a_console_that_is_switched_off_is_not_there(gateway_factory: GatewayFactory) -> None:
    gateway = started(gateway_factory, "--set", "admin.console=false")
    for path in ("", "api/topics", "console/console.js"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{gateway.admin.address}/{path}", timeout=WAIT_S)


@pytest.mark.parametrize(
    "path",
    [
        "topics?rows=201",
        "topics?rows=0",
        "topics?page=-1",
        "topics?sort=password",
        "topics?rows=1_0",
        "topics?rows=%D9%A1",
        "topics?page=99999999999999999999999999",
        "topic",
        "position?topic=t",
        "position?topic=t&offset=x",
        "position?topic=t&partition=5&offset=0",
        "messages?topic=t&limit=100000",
        "messages?topic=t&at=0",
        "messages?topic=t&at=9:0",
        "messages?topic=t&from=nowhere",
        "messages?topic=t&from=time",
        "messages?topic=t&bytes=999999999",
    ],
)
def test_parameters_out_of_their_bounds_are_refused(console: Gateway, path: str) -> None:
    assert denied(console, path) == (400, "parameter")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Any:
    gateway = Gateway(tmp_path_factory.mktemp("console"), list(OPEN))
    gateway.start()
    create(gateway, t=1)
    yield gateway
    gateway.stop()


@pytest.mark.parametrize(
    "path", ["topic?name=x", "messages?topic=x", "position?topic=x&offset=0", "group?name=x"]
)
def test_what_does_not_exist_is_not_found(console: Gateway, path: str) -> None:
    assert denied(console, path) == (404, "unknown")


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"group": "g"},
        {"group": "g", "to": "up"},
        {"group": 3, "to": "latest"},
        {"group": "g", "to": []},
        {"group": "g", "to": {}},
        {"group": "g", "to": "offset", "value": []},
        {"group": "g", "to": "latest", "topics": [[]]},
        {"group": "g", "to": "latest", "topics": {}},
    ],
)
def test_a_body_of_another_shape_is_refused(console: Gateway, body: object) -> None:
    status, page = call(console, "group/reset/preview", body)
    assert (status, page["error"]["reason"]) == (400, "parameter")


@pytest.mark.parametrize("body", [{}, {"preview": []}, {"preview": None}])
def test_a_reset_of_no_preview_is_refused(console: Gateway, body: object) -> None:
    status, page = call(console, "group/reset", body)
    assert (status, page["error"]["reason"]) == (400, "parameter")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'"\xff"', b'{"group":"\xed\xa0\x80"}', b'{"a":' * 10_000, b"[" * 60_000, b"9" * 5_000],
    ids=lambda body: str(body[:8]),
)
def test_a_body_that_is_no_json_is_refused_and_no_fault_of_ours(console: Gateway, body: bytes) -> None:
    url = f"http://{console.admin.address}/api/group/reset/preview"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=WAIT_S)
    assert refused.value.code == 400
    assert json.loads(refused.value.read())["error"]["reason"] == "parameter"
    assert "Traceback" not in console.log_tail(100_000)


def test_a_client_certificate_opens_the_console_beyond_loopback(
    gateway_factory: GatewayFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    server, ann, eve = authority.server(), authority.client("ann"), authority.client("eve")
    settings = {
        "admin.tls": "true",
        "admin.ca": authority.file,
        "admin.principals": f"User:CN=other;{principal_of(ann)}",
        "tls.certificate": server.certificate,
        "tls.key": server.key,
    }
    sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    gateway = gateway_factory(["--admin", with_port("0.0.0.0:0"), *sets])
    gateway.start()
    address = replace(gateway.admin, host="127.0.0.1").address

    def read(path: str, client: Issued | None) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(authority.file))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        try:
            with urllib.request.urlopen(f"https://{address}{path}", timeout=WAIT_S, context=context) as page:
                return page.status, json.loads(page.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]["reason"]

    assert read("/api/topics", ann)[0] == 200
    assert read("/api/topics", eve) == (403, "principal")
    assert read("/api/topics", None) == (403, "principal")
    assert read("/api/session", ann)[1]["isClosed"] is False
    # Commands take the CAs of the machine.
    health = ("cluster", "health", "--admin", f"https://{address}")
    untrusted = run_here(gateway, *health)
    assert untrusted.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in untrusted.stderr
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    healthy = run_here(gateway, *health)
    assert healthy.returncode == 0, healthy.stderr
    # Probes and Prometheus need no certificate, and plain HTTP is over.
    assert read("/healthz", None) == (200, {"status": "ok"})
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://{address}/healthz", timeout=WAIT_S)


def test_connections_that_never_finish_their_handshake_shut_no_one_out(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    files = [f"tls.certificate={server.certificate}", f"tls.key={server.key}"]
    sets = [word for value in ("admin.tls=true", "admin.connections=4", *files) for word in ("--set", value)]
    gateway = gateway_factory(sets)
    gateway.start()
    silent = [socket.create_connection((gateway.admin.host, gateway.admin.port)) for _ in range(30)]
    try:
        context = ssl.create_default_context(cafile=str(authority.file))
        url = f"https://{gateway.admin.address}/healthz"
        with urllib.request.urlopen(url, timeout=5.0, context=context) as page:
            assert page.status == 200
    finally:
        for sock in silent:
            sock.close()


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (["admin.principals=User:CN=x"], "admin.principals needs admin.tls"),
        (["admin.tls=true"], "tls.certificate"),
        (["admin.principals=CN=x"], "is no principal"),
        (["admin.token_file=/nowhere"], "admin.token_file"),
    ],
    ids=["no-tls", "no-certificate", "no-principal", "no-file"],
)
def test_settings_of_the_console_that_cannot_work_end_the_start(
    gateway_factory: GatewayFactory, sets: list[str], reason: str
) -> None:
    gateway = gateway_factory([word for value in sets for word in ("--set", value)])
    with pytest.raises(GatewayNotReady) as refused:
        gateway.start()
    assert refused.value.exit_code == 2 and reason in refused.value.log
