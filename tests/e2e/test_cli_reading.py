"""What the commands print and how long they wait: tails, tables, names of strangers, wrong addresses."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.addresses import parse_address
from gateway.cli.client import Client
from gateway.config import SETTINGS
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import seal
from ledger.batch.records import Record, build_batch
from tests.support.command import COMMAND, WAIT_S, run
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.ports import free_ports
from tests.support.terminal import CTRL_C, CTRL_D, Terminal

HOSTILE = "\x1b[31mRED\x1b[2J\nfake-group  Empty\x9b2J\u202e"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("cli"))
    gateway.start()
    yield gateway
    gateway.terminate()


def test_a_tail_continues_over_a_restart_and_prints_each_record_once(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory()
    gateway.start()
    run(gateway, "produce", "tail", stdin="1\n2\n3\n")
    command = [*COMMAND, "consume", "tail", "--count", "6", "-b", gateway.bootstrap]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert tail.stdout is not None
        assert [tail.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
        gateway.terminate()
        time.sleep(5)
        gateway.start()
        run(gateway, "produce", "tail", stdin="4\n5\n6\n")
        rest, talk = tail.communicate(timeout=WAIT_S)
        assert rest == "4\n5\n6\n" and tail.returncode == 0
        assert "trying again" in talk and "Consumed 6 records" in talk
    finally:
        tail.kill()
        tail.wait()


@pytest.mark.serial
def test_a_tail_without_a_gateway_gives_up_with_one_sentence(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory()
    gateway.start()
    run(gateway, "produce", "tail", stdin="1\n")
    # The real patience, 30 s, shortened.
    code = "import gateway.cli.fetching as f; f.PATIENCE_S = 2; import gateway.cli.main as m; m.main()"
    command = [sys.executable, "-c", code, "consume", "tail", "-b", gateway.bootstrap]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert tail.stdout is not None and tail.stdout.readline() == "1\n"
        began = time.monotonic()
        gateway.terminate()
        rest, talk = tail.communicate(timeout=WAIT_S)
        assert 2 <= time.monotonic() - began < 10
        assert rest == "" and tail.returncode == 1
        (sentence,) = [line for line in talk.splitlines() if line.startswith("dragoman: ")]
        assert "gave up after" in sentence and gateway.bootstrap in sentence
    finally:
        tail.kill()
        tail.wait()


def test_a_tail_of_a_topic_that_is_deleted_ends_at_once(gateway: Gateway) -> None:
    run(gateway, "produce", "gone", stdin="1\n")
    command = [*COMMAND, "consume", "gone", "-b", gateway.bootstrap]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert tail.stdout is not None and tail.stdout.readline() == "1\n"
        assert run(gateway, "topics", "delete", "gone").returncode == 0
        _, talk = tail.communicate(timeout=15)
        assert tail.returncode == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in talk
    finally:
        tail.kill()
        tail.wait()


@pytest.mark.serial
@pytest.mark.parametrize("arguments", [["produce", "t"], ["consume", "t", "--to-end"]])
def test_an_advertised_address_that_cannot_be_reached_is_named_at_once(
    gateway_factory: GatewayFactory, arguments: list[str]
) -> None:
    (port,) = free_ports(1)
    gateway = gateway_factory(["--advertise", f"127.0.0.1:{port}"])
    gateway.start()
    run(gateway, "produce", "t", stdin="")  # makes the topic
    began = time.monotonic()
    done = run(gateway, *arguments, stdin="x\n")
    assert time.monotonic() - began < 10  # 2 s, and the time to start; patience would be 30
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr and gateway.bootstrap in done.stderr
    assert "listeners.advertise" in done.stderr


def test_an_offset_that_only_some_partitions_have_moves_to_the_nearest_record(
    gateway: Gateway,
) -> None:
    run(gateway, "topics", "create", "uneven", "-p", "3")
    run(gateway, "produce", "uneven", "-p", "0", stdin="a\nb\n")
    run(gateway, "produce", "uneven", "-p", "1", stdin="c\n")
    done = run(gateway, "consume", "uneven", "--from", "1", "--count", "1")
    assert done.returncode == 0 and done.stdout == "b\n", done.stderr
    for partitions in (["--partition", "0"], []):
        refused = run(gateway, "consume", "uneven", "--from", "99", *partitions)
        assert refused.returncode == 1 and "OFFSET_OUT_OF_RANGE" in refused.stderr


@pytest.fixture(scope="module")
def hostile_group(gateway: Gateway) -> str:
    run(gateway, "produce", "watched", stdin="x\n")
    made = run(
        gateway, "groups", "reset-offsets", HOSTILE, "--topic", "watched", "--to", "earliest", "--execute"
    )
    assert made.returncode == 0, made.stderr
    return HOSTILE


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "list"],
        ["groups", "describe", HOSTILE],
        ["groups", "describe", HOSTILE + "x"],
        ["groups", "delete", HOSTILE + "x", "--yes"],
        ["topics", "describe", "watched\x1b[2J"],
    ],
)
def test_names_of_strangers_move_no_cursor_and_begin_no_line(
    gateway: Gateway, hostile_group: str, arguments: list[str]
) -> None:
    command = [*COMMAND, *arguments, "-b", gateway.bootstrap]
    with Terminal(command, {"NO_COLOR": "1", "TERM": "dumb"}, columns=200) as terminal:
        terminal.exit_code()
        assert "\x1b" not in terminal.seen and "\nfake-group" not in terminal.seen
        assert r"\x1b" in terminal.seen
    piped = run(gateway, *arguments)
    assert "\x1b" not in piped.stdout + piped.stderr and "\nfake-group" not in piped.stdout + piped.stderr


def test_json_keeps_the_names_of_strangers_exact(gateway: Gateway, hostile_group: str) -> None:
    shown = run(gateway, "groups", "list", "--json").stdout
    assert hostile_group in [line["group"] for line in json.loads(shown)]
    assert shown.replace("\n", "").isprintable()


def test_records_before_a_broken_one_of_their_batch_are_printed(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "broken", "-p", "1")
    batch = bytearray(build_batch([Record(at, 0, None, b"%d" % at) for at in range(3)]))
    batch[-1] = 100  # headers of the last record; the gateway does not open it
    seal(batch)
    with Client(parse_address(gateway.bootstrap, "listen")) as client:
        topic = TopicProduceData("broken", partition_data=[PartitionProduceData(0, bytes(batch))])
        response = client.ask(
            ApiKey.PRODUCE, 12, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        )
        assert response.responses[0].partition_responses[0].error_code == 0
    one = run(gateway, "consume", "broken", "--count", "1")
    assert (one.returncode, one.stdout) == (0, "0\n"), one.stderr
    both = run(gateway, "consume", "broken", "--to-end")
    assert (both.returncode, both.stdout) == (1, "0\n1\n")
    assert "dragoman: a batch of broken-0 cannot be read" in both.stderr


def test_a_piped_table_has_every_name_whole(gateway: Gateway) -> None:
    name = "t" * 249
    assert run(gateway, "topics", "create", name).returncode == 0
    lines = run(gateway, "topics", "list").stdout.splitlines()
    assert sum(line.startswith(name + " ") for line in lines) == 1
    # On a narrow terminal it is folded.
    with Terminal([*COMMAND, "topics", "list", "-b", gateway.bootstrap], columns=60) as terminal:
        assert terminal.exit_code() == 0
        assert sum(line.count("t") for line in terminal.seen.split()) >= 249
    run(gateway, "topics", "delete", name)


def test_settings_are_whole_when_piped_and_as_json() -> None:
    text = subprocess.run([*COMMAND, "settings"], capture_output=True, text=True, timeout=WAIT_S).stdout
    listed = json.loads(
        subprocess.run([*COMMAND, "settings", "--json"], capture_output=True, timeout=WAIT_S).stdout
    )
    for setting in SETTINGS.values():
        assert f" {setting.environment_name} " in text and setting.doc in text
    assert [line["environment"] for line in listed] == [one.environment_name for one in SETTINGS.values()]


def test_every_failure_is_reported_and_what_worked_as_json(gateway: Gateway) -> None:
    made = run(gateway, "topics", "create", "bad one", "good", "bad two", "--json")
    assert made.returncode == 1 and json.loads(made.stdout) == {"created": ["good"]}
    assert "topic bad one" in made.stderr and "topic bad two" in made.stderr
    gone = run(gateway, "topics", "delete", "no-1", "good", "no-2", "--json")
    assert gone.returncode == 1 and json.loads(gone.stdout) == {"deleted": ["good"]}
    assert "no-1" in gone.stderr and "no-2" in gone.stderr
    groups = run(gateway, "groups", "delete", "none-1", "none-2", "--json")
    assert groups.returncode == 1 and json.loads(groups.stdout) == {"deleted": []}
    assert "none-1" in groups.stderr and "none-2" in groups.stderr


def test_what_can_only_be_a_mistake_is_said(gateway: Gateway) -> None:
    run(gateway, "produce", "warned", stdin="x\n")
    listed = run(gateway, "groups", "list", "--state", "foo")
    assert listed.returncode == 0 and "No group can be foo" in listed.stderr
    assert "No group can be" not in run(gateway, "groups", "list", "--state", "stable").stderr
    altered = run(gateway, "topics", "alter", "warned", "--unset", "retention.msx", "--json")
    assert "There is no topic config retention.msx" in altered.stderr
    assert json.loads(altered.stdout)["unset"] == ["retention.msx"] and "Changed" not in altered.stderr
    both = run(gateway, "topics", "alter", "warned", "--unset", "retention.msx", "--unset", "retention.ms")
    assert "There is no topic config retention.msx" in both.stderr and "Changed" in both.stderr
    plan = run(gateway, "groups", "reset-offsets", "typo", "--topic", "warned", "--to", "latest")
    assert plan.returncode == 0 and "There was no group typo" in plan.stderr


@pytest.mark.parametrize(("typed", "code"), [(CTRL_C, 130), ("n\n", 1), (CTRL_D, 1), ("y\n", 0)])
def test_a_confirmation_takes_what_was_typed(gateway: Gateway, typed: str, code: int) -> None:
    run(gateway, "produce", "asked", stdin="x\n")
    with Terminal([*COMMAND, "topics", "delete", "asked", "-b", gateway.bootstrap]) as terminal:
        terminal.wait_for("[y/N]")
        terminal.write(typed)
        assert terminal.exit_code() == code
        assert "Traceback" not in terminal.seen
    there = "asked" in run(gateway, "topics", "list").stdout
    assert there == (code != 0)


def test_the_address_may_come_from_the_environment(gateway: Gateway) -> None:
    done = subprocess.run(
        [*COMMAND, "topics", "list"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={"PATH": "/usr/bin:/bin", "DRAGOMAN_BOOTSTRAP": gateway.bootstrap},
    )
    assert done.returncode == 0, done.stderr
    ignored = {"DRAGOMAN_BOOTSTRAP": "127.0.0.1:1", "PATH": "/usr/bin:/bin"}
    by_flag = [*COMMAND, "topics", "list", "-b", gateway.bootstrap]
    assert subprocess.run(by_flag, env=ignored, capture_output=True, timeout=WAIT_S).returncode == 0


def completed(gateway: Gateway, *words: str) -> list[str]:
    """What bash would propose for the last word."""
    line = ["dragoman", *words]
    done = subprocess.run(
        [Path(sys.executable).with_name("dragoman")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={
            "PATH": "/usr/bin:/bin",
            "_DRAGOMAN_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
            "DRAGOMAN_BOOTSTRAP": gateway.bootstrap,
        },
    )
    return done.stdout.split()


def test_a_shell_completes_values_and_names(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "completed-topic")
    assert completed(gateway, "produce", "t", "--codec", "sn") == ["snappy"]
    assert completed(gateway, "consume", "t", "--format", "k") == ["key-value"]
    assert completed(gateway, "topics", "describe", "completed-") == ["completed-topic"]
    assert completed(gateway, "topics", "create", "t", "--set", "retention.b") == ["retention.bytes"]
    assert completed(gateway, "serve", "--set", "limits.idle") == ["limits.idle_ms="]
