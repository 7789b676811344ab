"""The command line: what it says, how it ends, and with which exit code."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.metadata.sqlite import SqliteMetadata
from gateway.host import clock_ms
from tests.support.ports import free_ports
from tests.support.processes import without_power
from tests.support.shards import open_shard
from tests.support.terminal import Terminal

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
ANY_PORT = ["--listen", "PLAINTEXT://127.0.0.1:0", "--admin", "127.0.0.1:0"]
WAIT_S = 20.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=WAIT_S)


def serve(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """For gateways that must not come up."""
    return run("serve", *ANY_PORT, "--data-dir", str(directory), *arguments)


@contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """A gateway that is ready, and its ready file."""
    ready = directory / "ready.json"
    command = [*COMMAND, "serve", *ANY_PORT, "--data-dir", str(directory / "data")]
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        yield process, json.loads(ready.read_text())
    finally:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, talk = process.communicate(timeout=WAIT_S)
    return process.returncode, talk


def only_sentence(finished: subprocess.CompletedProcess[str]) -> str:
    """What `dragoman:` says; log lines apart, one line and no traceback."""
    assert "Traceback" not in finished.stderr
    lines: Sequence[str] = [line for line in finished.stderr.splitlines() if line.startswith("dragoman: ")]
    assert len(lines) == 1, finished.stderr
    return lines[0]


def test_help_shows_how_to_begin_without_loading_what_only_serving_needs() -> None:
    finished = run("--help")
    assert finished.returncode == 0
    for word in ("serve", "127.0.0.1:9092", "kcat"):
        assert word in finished.stdout
    check = (
        "import sys, gateway.cli.main; sys.exit(bool({'aiohttp', 'uvloop', 'structlog'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=WAIT_S).returncode == 0


def test_every_setting_is_listed() -> None:
    finished = subprocess.run(
        [*COMMAND, "settings"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert finished.returncode == 0
    assert "broker.num.partitions" in finished.stdout
    assert "DRAGOMAN_LIMITS_IDLE_MS" in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "limits.frame_byte=1"], "did you mean limits.frame_bytes?"),
        (["--set", "limits.frame_bytes"], "expected section.key=value"),
        (["--set", "limits.frame_bytes=1"], "limits.frame_bytes"),
        (["--config", "/nonexistent.toml"], "cannot read"),
        (["--listen", "SSL://127.0.0.1:0"], "needs tls.certificate"),
        (["--listen", "SASL_SSL://127.0.0.1:0"], "only PLAINTEXT:// and SSL://"),
        (["--listen", "PLAINTEXT://0.0.0.0:0"], "2 listeners"),
        (["--admin", "nowhere"], "admin.listen"),
        (["--metadata", "ftp:localhost"], "no metadata store for ftp:"),
        (["--metadata", "etcd:localhost"], "the URL of an etcd is etcd://HOST"),
        (["--metadata", "filer:localhost"], "the URL of a filer is filer://HOST"),
        (["--data", "s3:bucket"], "names no bucket"),
        (["--set", "storage.image=/tmp/image.db"], "storage.image"),
        (["--metadata", "memory:", "--data", "memory:"], "storage.allow_unsafe_acks"),
    ],
)
def test_a_wrong_flag_or_setting_ends_with_2_and_one_sentence(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    if "2 listeners" in expected:
        arguments, expected = [*arguments, "--advertise", "127.0.0.1:1"], "1 addresses for 2 listeners"
    finished = serve(tmp_path / "data", *arguments)
    assert finished.returncode == 2
    assert expected in only_sentence(finished)


def test_an_unknown_flag_ends_with_2() -> None:
    assert run("serve", "--sett", "x").returncode == 2
    assert run("nonsense").returncode == 2


def test_a_gateway_logs_where_it_is_and_ends_with_0_after_sigterm(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "PLAINTEXT://[::1]:0") as (process, ready):
        listeners = ready["listeners"]
        assert isinstance(listeners, list)
        assert ready["pid"] == process.pid
        assert listeners[0]["name"] == "PLAINTEXT" and listeners[0]["port"] > 0
        code, talk = stop(process, signal.SIGTERM)
        assert code == 0
        # Without a terminal there is no greeting between the events.
        events = [json.loads(line) for line in talk.splitlines()]
        (event,) = [event for event in events if event["event"] == "gateway.ready"]
        ports = [listener["port"] for listener in listeners]
        assert event["listeners"] == [f"PLAINTEXT://127.0.0.1:{ports[0]}", f"PLAINTEXT://[::1]:{ports[1]}"]
        assert event["advertised"] == [f"127.0.0.1:{ports[0]}", f"[::1]:{ports[1]}"]
        assert event["version"] and event["data_dir"] == str(tmp_path / "data")
        assert not (tmp_path / "ready.json").exists()


def greeting(directory: Path, *arguments: str, until: str = "metrics") -> str:
    """What a gateway says on a terminal, up to its last line or an event."""
    command = [*COMMAND, "serve", "--admin", "127.0.0.1:0", "--data-dir", str(directory / "data")]
    with Terminal([*command, *arguments], {"NO_COLOR": "1"}, columns=200) as terminal:
        terminal.wait_for(until)
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.exit_code() == 0
        return terminal.seen


def test_a_greeting_names_every_listener_and_a_command_for_each_is_as_it_must_be(tmp_path: Path) -> None:
    said = greeting(
        tmp_path, "--listen", "PLAINTEXT://[::1]:0", "--listen", "PLAINTEXT://127.0.0.1:0", until="metrics"
    )
    port = said.split("PLAINTEXT://[::1]:")[1].split(",")[0]
    assert f"kcat -C -b [::1]:{port} " in said and f"demo --bootstrap [::1]:{port}" in said
    assert "PLAINTEXT://127.0.0.1:" in said and "It advertises" not in said


def test_a_greeting_names_the_advertised_address_where_it_differs(tmp_path: Path) -> None:
    said = greeting(tmp_path, "--listen", "PLAINTEXT://127.0.0.1:0", "--advertise", "kafka.example:9092")
    assert "listens on PLAINTEXT://127.0.0.1:" in said and "It advertises kafka.example:9092." in said
    assert "-b kafka.example:9092 " in said


def test_a_greeting_says_where_metadata_and_records_are(tmp_path: Path) -> None:
    unsafe = ["--set", "storage.allow_unsafe_acks=true"]
    said = greeting(
        tmp_path, *ANY_PORT[:2], "--metadata", "memory:", "--data", f"file:{tmp_path / 'wal'}", *unsafe
    )
    assert f"(data: file:{tmp_path / 'wal'}, metadata: memory:)." in said


@pytest.mark.parametrize("setting", ["log.format=json", "log.level=warning"])
def test_a_gateway_that_is_to_be_silent_or_read_by_programs_does_not_greet(
    tmp_path: Path, setting: str
) -> None:
    command = [*COMMAND, "serve", *ANY_PORT, "--data-dir", str(tmp_path / "data"), "--set", setting]
    ready = tmp_path / "ready.json"
    with Terminal([*command, "--ready-file", str(ready)]) as terminal:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.exit_code() == 0
        assert "kcat" not in terminal.seen


SERVICE_LINKS = {
    "DRAGOMAN_SERVICE_HOST": "10.0.0.1",
    "DRAGOMAN_SERVICE_PORT": "9092",
    "DRAGOMAN_PORT": "tcp://10.0.0.1:9092",
    "DRAGOMAN_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "DRAGOMAN_PORT_9092_TCP_PROTO": "tcp",
    "DRAGOMAN_PORT_9092_TCP_PORT": "9092",
    "DRAGOMAN_PORT_9092_TCP_ADDR": "10.0.0.1",
}


def test_nothing_is_stopped_by_what_kubernetes_sets_for_a_service_called_dragoman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SERVICE_LINKS.items():
        monkeypatch.setenv(name, value)
    with serving(tmp_path) as (process, _):
        code, talk = stop(process, signal.SIGTERM)
    assert code == 0 and "settings.unknown_variable" not in talk
    for arguments in (["doctor"], ["ledger", "show"]):
        finished = run(*arguments, "--data-dir", str(tmp_path / "data"))
        assert finished.returncode == 0, finished.stderr
        assert "settings.unknown_variable" not in finished.stderr


def test_a_foreign_variable_is_logged_and_a_mistaken_one_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", "/opt/secret")
    with serving(tmp_path) as (process, _):
        code, talk = stop(process, signal.SIGTERM)
    assert code == 0 and "DRAGOMAN_HOME" in talk and "/opt/secret" not in talk
    monkeypatch.setenv("DRAGOMAN_LIMITS_IDLE", "1")
    finished = serve(tmp_path / "data")
    assert finished.returncode == 2
    assert "did you mean DRAGOMAN_LIMITS_IDLE_MS?" in only_sentence(finished)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["produce", "--help"], ["groups", "reset-offsets", "-h"], ["topics", "-h"]]
)
def test_help_keeps_the_lines_of_its_examples(arguments: list[str]) -> None:
    shown = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout
    before, _, _ = shown.partition("Options")
    examples = [line for line in before.splitlines() if "dragoman " in line and "Usage" not in line]
    assert examples
    for example in examples:
        if "dragoman serve," not in example and "Or both" not in example:
            assert example.startswith("     ") and not example.startswith("      "), before
    assert "...}" not in shown


@pytest.fixture
def unreadable(tmp_path: Path) -> Path:
    """A data directory of another user, closed to the user that runs the commands (`without_power`)."""
    with serving(tmp_path) as (process, _):
        stop(process, signal.SIGTERM)
    directory = tmp_path / "data"
    if os.getuid() == 0:
        os.chown(directory, 65534, 65534)
        directory.chmod(0o700)
    else:
        directory.chmod(0)
    return directory


@pytest.mark.parametrize(("command", "code"), [(["doctor"], 3), (["ledger", "show"], 4)])
def test_a_directory_that_this_user_may_not_read_is_one_sentence_with_whom_to_run_it_as(
    unreadable: Path, command: list[str], code: int
) -> None:
    finished = subprocess.run(
        [*COMMAND, *command, "--data-dir", str(unreadable)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        preexec_fn=without_power,
    )
    unreadable.chmod(0o700)
    assert finished.returncode == code, finished.stderr
    assert "Traceback" not in finished.stderr
    said = finished.stdout if code == 3 else only_sentence(finished)
    found = [line for line in said.splitlines() if str(unreadable) in line]
    assert len(found) == 1 and "run as " in found[0]
    assert code == 4 or found[0].startswith("FOUND  permissions: ")


async def ledger_of_one_entry(data_dir: Path) -> None:
    data_dir.mkdir()
    store = SqliteMetadata(data_dir / "metadata.db")
    shard = await open_shard(store, None, None, 1, clock_ms)
    await shard.close()
    await store.close()


def test_a_single_thing_is_counted_as_one(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    asyncio.run(ledger_of_one_entry(data_dir))
    looked_at = run("doctor", "--data-dir", str(data_dir))
    assert "journal: 1 entry is readable, begun from its first entry" in looked_at.stdout
    made = run("ledger", "backup", "--data-dir", str(data_dir), "--to", str(tmp_path / "backup"))
    assert made.stderr.startswith("Backed up 1 journal entry (0 topics), the last of ")


@pytest.mark.parametrize("mark", ["format", "lock", "metadata.db", "blobs/cluster-id"])
def test_a_backup_is_refused_where_a_gateway_has_its_data(tmp_path: Path, mark: str) -> None:
    data_dir, other = tmp_path / "data", tmp_path / "other"
    asyncio.run(ledger_of_one_entry(data_dir))
    (other / mark).parent.mkdir(parents=True)
    (other / mark).touch()
    before = sorted(other.rglob("*"))
    for to in (str(other), f"file://{other}"):
        refused = run("ledger", "backup", "--data-dir", str(data_dir), "--to", to)
        assert refused.returncode == 2, refused.stderr
        assert f"--to {to} has the data of a gateway" in only_sentence(refused)
        assert sorted(other.rglob("*")) == before


def test_a_backup_is_accepted_next_to_an_earlier_one_and_its_records(tmp_path: Path) -> None:
    data_dir, to = tmp_path / "data", tmp_path / "backup"
    asyncio.run(ledger_of_one_entry(data_dir))
    for _ in range(2):
        made = run("ledger", "backup", "--data-dir", str(data_dir), "--to", str(to))
        assert made.returncode == 0, made.stderr
        # As operators copy them.
        (to / "log" / "0").mkdir(parents=True, exist_ok=True)


def test_a_list_of_holds_says_that_there_is_none(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    asyncio.run(ledger_of_one_entry(data_dir))
    listed = run("ledger", "holds", "--data-dir", str(data_dir))
    assert listed.returncode == 0
    assert listed.stderr == "There is no hold; dragoman ledger backup makes one.\n"


def test_a_backup_that_cannot_be_written_names_its_own_flag(tmp_path: Path) -> None:
    data_dir, file = tmp_path / "data", tmp_path / "file"
    asyncio.run(ledger_of_one_entry(data_dir))
    file.touch()
    for to in (tmp_path / "no" / "where", file):
        failed = run("ledger", "backup", "--data-dir", str(data_dir), "--to", str(to))
        assert failed.returncode == 4, failed.stderr
        assert only_sentence(failed).endswith("choose another place with --to")


@pytest.mark.parametrize("command", [("ledger", "show"), ("doctor",)])
def test_an_error_is_a_sentence_on_stderr_also_where_json_is_wanted(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    finished = run(*command, "--data-dir", str(tmp_path / "none"), "--json")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert only_sentence(finished).startswith("dragoman: there is no ledger in ")


def test_systemd_is_notified_when_a_gateway_is_ready_has_reloaded_and_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(WAIT_S)
        command = [*COMMAND, "serve", *ANY_PORT, "--data-dir", str(tmp_path / "data")]
        process = subprocess.Popen(
            command, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}, stderr=subprocess.DEVNULL
        )
        try:
            word = systemd.recv(4096).decode().splitlines()
            assert word[0] == "READY=1" and word[1].startswith("STATUS=serving PLAINTEXT://127.0.0.1:")
            process.send_signal(signal.SIGHUP)
            assert systemd.recv(4096).decode().splitlines()[0] == "RELOADING=1"
            assert systemd.recv(4096) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert systemd.recv(4096) == b"STOPPING=1"
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            process.wait()


def test_a_stop_signal_that_comes_twice_at_once_drains_as_one_does(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
        code, talk = stop(process, signal.SIGTERM)
    assert code == 0, talk
    assert "gateway.killed" not in talk and '"gateway.stopped"' in talk


def test_an_interrupted_gateway_ends_with_130(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _):
        assert stop(process, signal.SIGINT)[0] == 130


def test_the_admin_pages_tell_health_readiness_metrics_and_version(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, ready):
        admin = ready["admin"]
        assert isinstance(admin, dict)
        address = f"http://{admin['host']}:{admin['port']}"

        def page(path: str) -> str:
            with urllib.request.urlopen(address + path, timeout=WAIT_S) as response:
                assert response.status == 200
                return str(response.read().decode())

        assert json.loads(page("/healthz"))["status"] == "ok"
        assert json.loads(page("/readyz")) == {"ready": True, "reasons": []}
        assert "dragoman_connections 0.0" in page("/metrics")
        assert json.loads(page("/version"))["version"]
        with pytest.raises(urllib.error.HTTPError):
            page("/secret")


def test_a_second_gateway_on_the_same_directory_ends_with_5_and_names_the_first(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _):
        finished = serve(tmp_path / "data")
        assert finished.returncode == 5
        sentence = only_sentence(finished)
        assert str(process.pid) in sentence and "--data-dir" in sentence
        process.kill()
        process.wait()
    (tmp_path / "ready.json").unlink()
    with serving(tmp_path) as (process, _):
        assert stop(process, signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("flag", "prefix"), [("--listen", "PLAINTEXT://"), ("--admin", "")], ids=["listener", "admin"]
)
def test_a_port_in_use_ends_with_5_and_names_the_flag(tmp_path: Path, flag: str, prefix: str) -> None:
    with serving(tmp_path) as (_, ready):
        listeners = ready["listeners"]
        assert isinstance(listeners, list)
        finished = serve(tmp_path / "other", flag, f"{prefix}127.0.0.1:{listeners[0]['port']}")
        assert finished.returncode == 5
        assert flag in only_sentence(finished)


def test_a_directory_that_cannot_be_used_ends_with_4_and_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finished = serve(tmp_path / "file" / "data")
    assert finished.returncode == 4
    assert "--data-dir" in only_sentence(finished)


def test_settings_come_from_file_and_environment(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "dragoman.toml"
    file.write_text(f'[listeners]\nlisten = ["PLAINTEXT://127.0.0.1:{port}"]\n[admin]\nlisten = ""\n')
    ready = tmp_path / "ready.json"
    environment = {**os.environ, "DRAGOMAN_STORAGE_DATA_DIR": str(tmp_path / "elsewhere")}
    command = [*COMMAND, "serve", "--config", str(file), "--ready-file", str(ready)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        content = json.loads(ready.read_text())
        assert content["listeners"][0]["port"] == port
        assert content["admin"] is None
        assert (tmp_path / "elsewhere" / "lock").exists()
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_the_demo_without_a_gateway_says_so() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "gateway.cli.demo", "--bootstrap", f"127.0.0.1:{port}"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert finished.returncode == 1
    assert "is a gateway running?" in finished.stderr


def test_the_demo_gets_back_what_it_has_produced(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, ready):
        listeners = ready["listeners"]
        assert isinstance(listeners, list)
        bootstrap = f"127.0.0.1:{listeners[0]['port']}"
        for first in (0, 10):
            finished = subprocess.run(
                [sys.executable, "-m", "gateway.cli.demo", "--bootstrap", bootstrap],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
            )
            assert finished.returncode == 0, finished.stderr
            assert f"from offset {first} on" in finished.stdout
            assert "hello number 9" in finished.stdout
