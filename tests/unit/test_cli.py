"""The command line: what it says, how it ends, and with which exit code."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports

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
        (["--metadata", "etcd:localhost"], "no metadata store for etcd:"),
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


def test_a_gateway_says_where_it_listens_and_ends_with_0_after_sigterm(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, ready):
        listeners = ready["listeners"]
        assert isinstance(listeners, list)
        assert ready["pid"] == process.pid
        assert listeners[0]["name"] == "PLAINTEXT" and listeners[0]["port"] > 0
        code, talk = stop(process, signal.SIGTERM)
        assert code == 0
        assert f"127.0.0.1:{listeners[0]['port']}" in talk and "kcat" in talk
        assert not (tmp_path / "ready.json").exists()


def test_an_interrupted_gateway_ends_with_130(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _):
        assert stop(process, signal.SIGINT)[0] == 130


def test_the_admin_pages_tell_health_readiness_metrics_and_version(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, ready):
        admin = ready["admin"]
        assert isinstance(admin, dict)
        address = f"http://{admin['host']}:{admin['port']}"

        def page(path: str) -> str:
            with urllib.request.urlopen(address + path, timeout=WAIT_S) as answer:
                assert answer.status == 200
                return str(answer.read().decode())

        assert json.loads(page("/healthz"))["status"] == "ok"
        assert json.loads(page("/readyz")) == {"ready": True, "reasons": []}
        assert "dragoman_connections 0.0" in page("/metrics")
        assert json.loads(page("/version"))["version"]
        with pytest.raises(urllib.error.HTTPError):
            page("/secret")


def test_a_second_gateway_on_the_same_directory_ends_with_5_and_says_who_has_it(tmp_path: Path) -> None:
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
