"""The commands that speak Kafka, tried as a newcomer would, against a gateway."""

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.partitioner import partition_of
from tests.support.command import COMMAND, WAIT_S, run
from tests.support.gateway import Gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("cli"))
    gateway.start()
    yield gateway
    gateway.terminate()


def test_a_topic_is_created_described_altered_and_deleted(gateway: Gateway) -> None:
    assert run(gateway, "topics", "create", "life", "-p", "2", "--set", "retention.ms=5000").returncode == 0
    assert run(gateway, "topics", "alter", "life", "-p", "3", "--unset", "retention.ms").returncode == 0
    assert run(gateway, "topics", "alter", "life", "--set", "segment.ms=99000").returncode == 0
    (found,) = json.loads(run(gateway, "topics", "describe", "life", "--json").stdout)
    assert [line["partition"] for line in found["partitions"]] == [0, 1, 2]
    assert found["configs"] == {"segment.ms": "99000"}
    names = [topic["name"] for topic in json.loads(run(gateway, "topics", "list", "--json").stdout)]
    assert "life" in names
    assert run(gateway, "topics", "delete", "life").returncode == 0
    gone = run(gateway, "topics", "describe", "life")
    assert gone.returncode == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in gone.stderr and gone.stdout == ""


def test_a_topic_that_exists_is_an_error_unless_that_is_allowed(gateway: Gateway) -> None:
    assert run(gateway, "topics", "create", "once", "-p", "2").returncode == 0
    again = run(gateway, "topics", "create", "once", "-p", "3")
    assert again.returncode == 1 and "TOPIC_ALREADY_EXISTS" in again.stderr
    assert "--if-not-exists" in again.stderr
    allowed = run(gateway, "topics", "create", "once", "twice", "-p", "3", "--if-not-exists", "--json")
    assert allowed.returncode == 0 and json.loads(allowed.stdout) == {
        "created": ["twice"],
        "existing": ["once"],
    }
    assert "once exists already" in allowed.stderr and "dragoman: " not in allowed.stderr
    (found,) = json.loads(run(gateway, "topics", "describe", "once", "--json").stdout)
    assert len(found["partitions"]) == 2
    wrong = run(gateway, "topics", "create", "once", "a b", "--if-not-exists", "--json")
    assert wrong.returncode == 1 and "INVALID_TOPIC_EXCEPTION" in wrong.stderr
    assert json.loads(wrong.stdout) == {"created": [], "existing": ["once"]}


def test_a_topic_that_does_not_exist_is_an_error_unless_that_is_allowed(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "leaving")
    missing = run(gateway, "topics", "delete", "never-was")
    assert missing.returncode == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in missing.stderr
    allowed = run(gateway, "topics", "delete", "leaving", "never-was", "--if-exists", "--json")
    assert allowed.returncode == 0
    assert json.loads(allowed.stdout) == {"deleted": ["leaving"], "missing": ["never-was"]}
    assert "There is no topic never-was." in allowed.stderr


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_were_produced(gateway: Gateway, codec: str) -> None:
    text = "".join(f"Zeile {number} ü\n" for number in range(3_000))
    produced = run(gateway, "produce", f"lines-{codec}", "--codec", codec, stdin=text)
    assert produced.returncode == 0 and produced.stdout == "" and "3000 records" in produced.stderr
    assert run(gateway, "consume", f"lines-{codec}", "--to-end").stdout == text


def test_keys_go_where_java_producers_send_them_and_come_back_with_their_headers(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "keys", "-p", "5")
    run(gateway, "produce", "keys", "-K", "=", "-H", "from=here", stdin="a=1\nb=2\n21=x=y\n")
    lines = run(gateway, "consume", "keys", "--to-end", "--json").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert {record["key"]: record["value"] for record in records} == {"a": "1", "b": "2", "21": "x=y"}
    for record in records:
        assert record["partition"] == partition_of(record["key"].encode(), 5)
        assert record["headers"] == [{"name": "from", "value": "here"}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from", "7", "--to-end"], "8 9 10"),
        (["--from", "-2", "--to-end"], "9 10"),
        (["--from", "earliest", "--count", "2"], "1 2"),
        (["--from", "2001-01-01", "--count", "1"], "1"),
        (["--from", "latest", "--to-end"], ""),
        (["--count", "0"], ""),
    ],
)
def test_consume_begins_where_from_says(gateway: Gateway, arguments: list[str], expected: str) -> None:
    if not run(gateway, "consume", "ten", "--to-end").stdout:
        run(gateway, "produce", "ten", stdin="".join(f"{number}\n" for number in range(1, 11)))
    consumed = run(gateway, "consume", "ten", *arguments)
    assert consumed.returncode == 0
    assert consumed.stdout.split() == expected.split()


def test_an_interrupted_consumer_ends_with_130(gateway: Gateway) -> None:
    run(gateway, "produce", "wait", stdin="first\n")
    process = subprocess.Popen(
        [*COMMAND, "consume", "wait", "-b", gateway.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "first\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=WAIT_S)
        assert process.returncode == 130
        assert "Consumed 1 record of" in talk and "Traceback" not in talk
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["consume", "ten", "--from", "yesterday"], 2, "expected earliest, latest"),
        (["consume", "ten", "--from", "999"], 1, "offsets 0 to 10 are there"),
        (["consume", "ten", "--partition", "4"], 2, "partitions 0 to 0"),
        (["consume", "ten", "--format", "xml"], 2, "value, key-value, json"),
        (["consume", "nowhere-at-all"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["produce", "ten", "--codec", "zip"], 2, "none, gzip"),
        (["produce", "ten", "--key-separator", ":"], 1, "line 1 has no ':'"),
        (["topics", "create", "bad/name"], 1, "INVALID_TOPIC_EXCEPTION"),
        (["topics", "create", "x", "--set", "retention.mss=1"], 1, "did you mean retention.ms?"),
        (["topics", "create", "x", "--set", "nonsense=1"], 1, "name: nonsense)"),
        (["topics", "alter", "ten", "--set", "retention.mss=1"], 1, "did you mean retention.ms?"),
        (["topics", "alter", "ten"], 2, "nothing to alter"),
        (["topics", "alter", "ten", "--set", "x"], 2, "expected NAME=VALUE"),
    ],
)
def test_a_mistake_ends_with_one_sentence_that_helps(
    gateway: Gateway, arguments: list[str], code: int, expected: str
) -> None:
    if not run(gateway, "consume", "ten", "--to-end").stdout:
        run(gateway, "produce", "ten", stdin="".join(f"{number}\n" for number in range(1, 11)))
    finished = run(gateway, *arguments, stdin="no key\n")
    assert finished.returncode == code, finished.stderr
    assert expected in finished.stderr and "Traceback" not in finished.stderr
    assert sum(line.startswith("dragoman: ") for line in finished.stderr.splitlines()) == 1


def test_an_endpoint_that_does_not_exist_is_reported_with_the_remedy(tmp_path: Path) -> None:
    command = [*COMMAND, "topics", "list", "-b", "127.0.0.1:1"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert finished.returncode == 1 and "--bootstrap HOST:PORT" in finished.stderr


def test_a_web_page_is_not_taken_for_a_listener_that_speaks_tls(gateway: Gateway) -> None:
    command = [*COMMAND, "topics", "list", "-b", gateway.admin.address]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert finished.returncode == 1 and "responded in HTTP: that is a web page" in finished.stderr
    assert "admin address" in finished.stderr and "TLS" not in finished.stderr


def test_the_partitioner_agrees_with_kafka() -> None:
    # What org.apache.kafka.common.utils.Utils.murmur2 gives for these keys.
    from gateway.cli.partitioner import murmur2

    assert [murmur2(key) for key in (b"21", b"foobar", b"")] == [
        -973932308 & 0xFFFFFFFF,
        -790332482 & 0xFFFFFFFF,
        275646681,
    ]


def test_a_shell_can_complete_the_commands() -> None:
    # The shell is the nearest one above in the tree of processes; two commands keep bash from becoming
    # the program itself.
    requested = f"{shlex.join([*COMMAND, '--show-completion'])}; exit $?"
    finished = subprocess.run(["bash", "-c", requested], capture_output=True, text=True, timeout=WAIT_S)
    assert finished.returncode == 0 and "complete" in finished.stdout
