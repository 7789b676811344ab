"""`dragoman produce`: nothing that it read is lost without a word; what `consume --json` prints goes in."""

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import COMMAND, WAIT_S
from tests.support.gateway import Gateway
from tests.support.terminal import CTRL_C, Terminal


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("cli"))
    gateway.start()
    yield gateway
    gateway.terminate()


def run(gateway: Gateway, *arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments, "-b", gateway.bootstrap]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(command, input=data, capture_output=True, timeout=WAIT_S)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def in_shell(gateway: Gateway, line: str) -> subprocess.CompletedProcess[str]:
    """`DRAGOMAN` stands for the command."""
    text = line.replace("DRAGOMAN", shlex.join(COMMAND))
    return subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={"DRAGOMAN_BOOTSTRAP": gateway.bootstrap, "PATH": "/usr/bin:/bin"},
    )


def stored(gateway: Gateway, topic: str) -> int:
    (described,) = json.loads(run(gateway, "topics", "describe", topic, "--json").stdout)
    return sum(int(line["high_watermark"]) for line in described["partitions"])


def test_records_are_sent_although_the_acknowledgements_are_not_read(gateway: Gateway) -> None:
    done = in_shell(gateway, "seq 100000 | DRAGOMAN produce left --json | head -1; echo ${PIPESTATUS[1]}")
    assert done.stdout.splitlines()[-1] == "0"
    assert "Produced 100000 records" in done.stderr and "Traceback" not in done.stderr
    assert stored(gateway, "left") == 100_000


def test_a_reader_that_leaves_is_no_error(gateway: Gateway) -> None:
    run(gateway, "produce", "some", stdin="x\n")
    done = in_shell(gateway, "DRAGOMAN topics list | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""


@pytest.mark.parametrize("good", [1, 3, 6_000])
def test_the_good_lines_before_a_bad_one_are_stored_and_named(gateway: Gateway, good: int) -> None:
    topic = f"bad-after-{good}"
    lines = "".join(f"key{number}:value\n" for number in range(good))
    done = run(gateway, "produce", topic, "-K", ":", stdin=lines + "bad\nlater:line\n")
    assert done.returncode == 1 and f"line {good + 1} has no ':'" in done.stderr
    named = "line 1 is acknowledged" if good == 1 else f"lines 1 to {good} are acknowledged"
    assert named in done.stderr
    assert stored(gateway, topic) == good


def test_a_refused_batch_names_what_was_acknowledged_before_it(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "small", "--set", "max.message.bytes=2000")
    lines = "".join(f"{number}\n" for number in range(20)) + "x" * 5_000 + "\n"
    process = subprocess.Popen(
        [*COMMAND, "produce", "small", "-b", gateway.bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    first, _, rest = lines.partition("x")
    process.stdin.write(first)
    process.stdin.flush()
    deadline = time.monotonic() + WAIT_S
    while stored(gateway, "small") < 20 and time.monotonic() < deadline:
        time.sleep(0.1)
    _, talk = process.communicate("x" + rest, timeout=WAIT_S)
    assert process.returncode == 1
    assert "MESSAGE_TOO_LARGE" in talk and "lines 1 to 20 are acknowledged" in talk
    assert "the limit is 2000" in talk and "max.message.bytes" in talk


def test_records_without_a_key_for_a_compacted_topic_name_the_flag_that_gives_keys(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "compacted", "--set", "cleanup.policy=compact")
    done = run(gateway, "produce", "compacted", stdin="a\n")
    assert done.returncode == 1 and "INVALID_RECORD (a compacted topic takes only" in done.stderr
    assert "--key-separator" in done.stderr and "One or more" not in done.stderr


def test_a_record_that_is_refused_for_its_timestamp_needs_no_key(gateway: Gateway) -> None:
    run(gateway, "topics", "create", "bounded", "--set", "message.timestamp.before.max.ms=1000")
    line = '{"value": "v", "timestamp_ms": 1000}\n'
    done = run(gateway, "produce", "bounded", "--format", "json", stdin=line)
    assert done.returncode == 1 and "timestamp 1000 is outside the bounds" in done.stderr
    assert "--key-separator" not in done.stderr


def test_typed_lines_are_acknowledged_when_they_end_by_ctrl_c(gateway: Gateway) -> None:
    with Terminal([*COMMAND, "produce", "typed", "-b", gateway.bootstrap]) as terminal:
        terminal.wait_for("Ctrl-D ends")
        for number in range(1, 4):
            terminal.write(f"line {number}\n")
            terminal.wait_for(f"line {number}\r\n")
        time.sleep(0.3)
        terminal.write(CTRL_C)
        assert terminal.exit_code() == 130
        assert "lines 1 to 3 are acknowledged" in terminal.seen and "Traceback" not in terminal.seen
    assert stored(gateway, "typed") == 3


def test_an_interrupt_in_the_middle_stores_no_record_twice(gateway: Gateway) -> None:
    process = subprocess.Popen(
        [*COMMAND, "produce", "stopped", "-b", gateway.bootstrap, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    for number in range(20_000):
        process.stdin.write(b"%d\n" % number)
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    talk = process.stderr.read().decode()
    assert process.wait(WAIT_S) == 130
    acknowledged = int(talk.split("lines 1 to ")[1].split()[0])
    lines = run(gateway, "consume", "stopped", "--to-end").stdout.split()
    assert len(lines) >= acknowledged > 0
    assert lines == [str(number) for number in range(len(lines))]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("DRAGOMAN topics list > /dev/full", 1),
        ("DRAGOMAN topics list --json > /dev/full", 1),
        ("DRAGOMAN consume output --to-end > /dev/full", 1),
        ("DRAGOMAN settings > /dev/full", 1),
        ("echo x | DRAGOMAN produce output --json > /dev/full", 1),
        ("DRAGOMAN topics list >&-", 1),
        ("DRAGOMAN produce output <&-", 2),
        ("DRAGOMAN topics describe $'\\xff'", 2),
        ("echo x | DRAGOMAN produce output -K $'\\xff'", 1),
    ],
)
def test_a_stream_that_cannot_be_used_ends_in_one_sentence(gateway: Gateway, line: str, code: int) -> None:
    run(gateway, "produce", "output", stdin="x\n")
    done = in_shell(gateway, line)
    assert done.returncode == code, done.stderr
    assert sum(said.startswith("dragoman: ") for said in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


RECORDS: list[dict[str, object]] = [
    {"value": "plain"},
    {"key": None, "value": None, "timestamp_ms": 1_700_000_000_000},
    {
        "key": "k",
        "value": "carriage return\r",
        "headers": [
            {"name": "h", "value": "ü"},
            {"name": "null", "value": None},
            {"name_base64": "/w==", "value_base64": "/w=="},
        ],
        "timestamp_ms": 1_600_000_000_123,
        "partition": 2,
    },
    {"key_base64": "/wA=", "value_base64": "/w==", "partition": 1, "timestamp_ms": -1},
    {"key": "", "value": ""},
]


def test_what_consume_prints_as_json_goes_in_again_and_is_the_same(gateway: Gateway) -> None:
    for topic in ("first", "second"):
        assert run(gateway, "topics", "create", topic, "-p", "3").returncode == 0
    lines = "\n\n".join(json.dumps(record) for record in RECORDS)
    assert run(gateway, "produce", "first", "--format", "json", stdin=lines).returncode == 0
    printed = run(gateway, "consume", "first", "--to-end", "--json").stdout
    assert len(printed.splitlines()) == len(RECORDS)
    for expected in RECORDS:
        assert any(expected.items() <= json.loads(line).items() for line in printed.splitlines()), printed
    assert run(gateway, "produce", "second", "--format", "json", stdin=printed).returncode == 0
    again = run(gateway, "consume", "second", "--to-end", "--json").stdout.replace('"second"', '"first"')
    assert sorted(again.splitlines()) == sorted(printed.splitlines())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x", "is no JSON"),
        ("[1]", "is no JSON object"),
        ('{"value": 1}', "neither text nor null"),
        ('{"vlaue": "x"}', "has a field 'vlaue'"),
        ('{"key": "x"}', 'neither "value" nor'),
        ('{"value": "x", "partition": 7}', "there are 0 to 0"),
        ('{"value": "x", "partition": true}', "partition that is no number"),
        ('{"value": "x", "timestamp_ms": 1.5}', "timestamp_ms that is no number"),
        ('{"value_base64": "?"}', "no base64"),
        ('{"value": "x", "value_base64": "eA=="}', "value and value_base64"),
        ('{"value": "\\ud800"}', "no Unicode"),
        ('{"value": "x", "headers": [{"value": "x"}]}', "without a name"),
        ('{"value": "x", "headers": {}}', "no list"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_what_came_before_is_stored(
    gateway: Gateway, line: str, expected: str
) -> None:
    done = run(gateway, "produce", "json", "-f", "json", stdin=f'{{"value": "good"}}\n{line}\n')
    assert done.returncode == 1, done.stderr
    assert "line 2 " in done.stderr and expected in done.stderr and "line 1 is acknowledged" in done.stderr
    assert "Traceback" not in done.stderr


def test_lines_keep_their_carriage_return_and_may_have_tabs_and_nulls(gateway: Gateway) -> None:
    run(gateway, "produce", "tabs", "-K", r"\t", "--null", "NULL", stdin=b"a\tb\r\nNULL\tNULL\n")
    lines = run(gateway, "consume", "tabs", "--to-end", "--json").stdout.splitlines()
    assert [(one["key"], one["value"]) for one in map(json.loads, lines)] == [("a", "b\r"), (None, None)]
    shown = run(gateway, "consume", "tabs", "--to-end", "-f", "key-value", "--null", "-").stdout
    assert shown == "a\tb\r\n-\t-\n"


@pytest.mark.parametrize("flags", [["-K", ":"], ["--null", "N"]])
def test_flags_for_lines_do_not_go_with_json(gateway: Gateway, flags: list[str]) -> None:
    done = run(gateway, "produce", "json", "--format", "json", *flags)
    assert done.returncode == 2 and "--format json" in done.stderr


def test_progress_on_a_terminal_counts_while_records_go(gateway: Gateway, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    produce = shlex.join([*COMMAND, "produce", "counted", "-b", gateway.bootstrap])
    seen = tmp_path / "seen"
    waits = f"until [ -e {shlex.quote(str(seen))} ]; do sleep 0.1; done"
    script.write_text(f"(seq 5000; {waits}; seq 5000) | {produce}\n")
    with Terminal(["bash", str(script)]) as terminal:
        terminal.wait_for("5000 records")
        assert "Produced" not in terminal.seen
        seen.touch()
        assert terminal.exit_code() == 0
        assert "Produced 10000 records" in terminal.seen
