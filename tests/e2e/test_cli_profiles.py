"""Client profiles and the debug bundle."""

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from gateway.cli.debug_bundle import secret_values, url_without_secrets, without_secrets
from tests.support.command import COMMAND, WAIT_S, run
from tests.support.gateway import Gateway
from tests.support.processes import without_power

PASSWORD = "hunter2-hunter2"
CLOSED = "127.0.0.1:1"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("profiles"))
    gateway.start()
    yield gateway
    gateway.terminate()


def dragoman(
    *arguments: str,
    environment: Mapping[str, str],
    without: tuple[str, ...] = (),
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`before` is called in its process, as `preexec_fn`."""
    own = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**own, **environment},
        preexec_fn=before,
    )


@pytest.fixture
def environment(gateway: Gateway, tmp_path: Path) -> dict[str, str]:
    """With a file of profiles: `right`, `wrong` and, by default, `right`."""
    directory = tmp_path / "dragoman"
    directory.mkdir()
    (directory / "client.toml").write_text(
        f'default = "right"\n[profiles.right]\nbootstrap = "{gateway.bootstrap}"\n'
        f'[profiles.wrong]\nbootstrap = "{CLOSED}"\n'
    )
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_a_profile_says_where_to_connect_unless_the_environment_or_a_flag_does(
    gateway: Gateway, environment: dict[str, str]
) -> None:
    def listed(*arguments: str, **more: str) -> int:
        return dragoman(*arguments, environment={**environment, **more}).returncode

    assert listed("topics", "list") == 0
    assert listed("--profile", "wrong", "topics", "list") == 1
    assert listed("topics", "list", DRAGOMAN_CLIENT_PROFILE="wrong") == 1
    assert listed("topics", "list", DRAGOMAN_BOOTSTRAP=CLOSED) == 1
    assert listed("--profile", "wrong", "topics", "list", DRAGOMAN_BOOTSTRAP=gateway.bootstrap) == 0
    assert listed("--profile", "wrong", "topics", "list", "-b", gateway.bootstrap) == 0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[profiles.b]\nbootstrap = 'x:1'", "there is no profile a in"),
        ("[profiles.a]\nbootstrp = 'x:1'", "unknown bootstrp; there are bootstrap, tls_ca"),
        ("[profiles.a]\nbootstrap = 9092", "bootstrap is no text"),
        ("[profile.a]\nbootstrap = 'x:1'", "tables [profiles.NAME]"),
        ("profiles", "is no TOML"),
        (None, "there is no file"),
    ],
    ids=["other", "field", "number", "table", "toml", "missing"],
)
def test_a_profile_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    file = tmp_path / "client.toml"
    if content is not None:
        file.write_text(content)
    done = dragoman("--profile", "a", "topics", "list", environment={"DRAGOMAN_CLIENT_CONFIG": str(file)})
    assert done.returncode == 2 and complaint in done.stderr and "Traceback" not in done.stderr
    # It does not concern what is no client.
    assert dragoman("settings", environment={"DRAGOMAN_CLIENT_CONFIG": str(file)}).returncode == 0


@pytest.fixture
def closed_home(tmp_path: Path) -> Iterator[Path]:
    """A home whose file of profiles is in a directory that `without_power` may not look into."""
    home = tmp_path / "home"
    directory = home / ".config" / "dragoman"
    directory.mkdir(parents=True)
    (directory / "client.toml").write_text("[profiles.a]\nbootstrap = 'x:1'")
    directory.chmod(0)
    yield home
    directory.chmod(0o700)


@pytest.mark.parametrize("command", [["topics", "list", "-b", CLOSED], ["doctor"]], ids=["client", "doctor"])
def test_a_home_that_cannot_be_looked_into_has_no_profiles(
    closed_home: Path, tmp_path: Path, command: list[str]
) -> None:
    own = {"HOME": str(closed_home), "DRAGOMAN_STORAGE_DATA_DIR": str(tmp_path / "none")}
    done = dragoman(*command, environment=own, without=("XDG_CONFIG_HOME",), before=without_power)
    assert "Traceback" not in done.stderr
    assert "cannot connect to 127.0.0.1:1" in done.stderr or "there is no ledger in" in done.stderr


@pytest.mark.parametrize("by", ["--profile a", "DRAGOMAN_CLIENT_CONFIG"])
def test_a_file_of_profiles_that_is_named_and_cannot_be_looked_into_is_one_sentence(
    closed_home: Path, by: str
) -> None:
    flags = by.split() if by.startswith("--") else []
    file = closed_home / ".config/dragoman/client.toml"
    own = {"HOME": str(closed_home)} | ({} if flags else {by: str(file)})
    done = dragoman(
        *flags, "topics", "list", environment=own, without=("XDG_CONFIG_HOME",), before=without_power
    )
    assert done.returncode == 2
    assert done.stderr == f"dragoman: {by}: cannot read {file}: Permission denied\n"


def test_completion_uses_the_profile(gateway: Gateway, environment: dict[str, str]) -> None:
    run(gateway, "topics", "create", "completed-topic")
    asks = {
        "_PYTHON _M GATEWAY.CLI.MAIN_COMPLETE": "",
        "_DRAGOMAN_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": "dragoman topics describe comp",
    }
    code = "import sys; sys.argv[0] = 'dragoman'; import gateway.cli.main as m; m.main()"
    done = subprocess.run(
        [COMMAND[0], "-c", code],
        env={**os.environ, **environment, **asks},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert "completed-topic" in done.stdout, done.stderr


def members_of(archive: Path) -> dict[str, bytes]:
    """By their paths below the one directory in it."""
    found = {}
    with tarfile.open(archive) as opened:
        for member in opened.getmembers():
            file = opened.extractfile(member)
            assert file is not None and member.mode == 0o600
            found[member.name.partition("/")[2]] = file.read()
    return found


def leave_a_transaction_open(gateway: Gateway, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("seen-topic", b"x", partition=0)
    assert producer.flush(WAIT_S) == 0


def test_a_bundle_has_what_helps_and_no_secrets(gateway: Gateway, tmp_path: Path) -> None:
    run(gateway, "produce", "seen-topic", stdin=f"{PASSWORD}-in-a-record\n")
    run(
        gateway,
        "groups",
        "reset-offsets",
        "seen-group",
        "--topic",
        "seen-topic",
        "--to",
        "latest",
        "--execute",
    )
    leave_a_transaction_open(gateway, "seen-id")
    log = tmp_path / "gateway.log"
    log.write_text(f"connected with {PASSWORD} and AKIA{PASSWORD}\n")
    secret = {
        "DRAGOMAN_TLS_KEY_PASSWORD": PASSWORD,
        "AWS_SECRET_ACCESS_KEY": f"AKIA{PASSWORD}",
        "DRAGOMAN_STORAGE_METADATA": f"etcd://root:{PASSWORD}@127.0.0.1:1/p?token=t0k3n-of-it",
        "DRAGOMAN_STORAGE_DATA": "s3://bucket/p",
    }
    to = tmp_path / "fault.tar.gz"
    arguments = ("debug", "bundle", "--to", str(to), "--admin", gateway.admin.address, "--log", str(log))
    done = dragoman(*arguments, "-b", gateway.bootstrap, environment=secret)
    assert done.returncode == 0, done.stderr
    assert to.stat().st_mode & 0o777 == 0o600
    members = members_of(to)
    assert json.loads(members["failures.json"]) == {}
    assert {"host.json", "settings.json", "admin/readyz", "admin/metrics", "logs/0-gateway.log"} <= set(
        members
    )
    assert b"seen-topic" in members["endpoint/metadata.json"]
    assert "seen-group" in json.loads(members["endpoint/groups.json"])
    transactions = json.loads(members["endpoint/transactions.json"])
    assert transactions["states"] == {"Ongoing": 1}
    assert transactions["open"]["seen-id"]["partitions"] == {"seen-topic": [0]}
    settings = json.loads(members["settings.json"])
    assert settings["storage.metadata"] == "etcd://<secret>@127.0.0.1:1/p?token=<secret>"
    assert settings["tls.key_password"] == "<secret>" and settings["limits.connections"]
    for path, content in members.items():
        assert PASSWORD.encode() not in content and b"t0k3n" not in content, path
    again = dragoman(*arguments, "-b", gateway.bootstrap, environment={})
    assert again.returncode == 2 and "exists" in again.stderr


def test_a_bundle_is_written_where_nothing_responds(tmp_path: Path) -> None:
    to = tmp_path / "fault.tar.gz"
    arguments = ("debug", "bundle", "--to", str(to), "--admin", CLOSED, "-b", CLOSED, "--log", "no-such.log")
    done = dragoman(*arguments, environment={})
    assert done.returncode == 0 and "Not in it: endpoint" in done.stderr
    failures = json.loads(members_of(to)["failures.json"])
    assert {"endpoint", "admin page /readyz", "log no-such.log"} <= set(failures)


def test_users_and_parameters_of_urls_are_hidden_and_short_values_are_not_searched_for() -> None:
    url = "s3://key:s%40fe@host/bucket?secret=abc&region=eu"
    assert url_without_secrets(url) == "s3://<secret>@host/bucket?secret=<secret>&region=<secret>"
    assert url_without_secrets("s3://bucket/prefix") == "s3://bucket/prefix"
    assert secret_values(None, {"MY_TOKEN": "abc", "X_PASSWORD": "abcd", "PATH": "/bin"}) == [b"abcd"]


def test_what_is_secret_in_a_log_is_hidden_also_where_no_setting_says_so() -> None:
    line = b"put to etcd://u:hunter22@h/p failed; GET s3://b/k?X-Sig=abc&n=1, true \xff 12345"
    secrets = secret_values(
        None, {"USE_TOKEN": "true", "API_KEY_DAYS": "12345", "A_TOKEN": "\udcff\udcff\udcff\udcff"}
    )
    assert secrets == [b"\xff" * 4]
    hidden = b"put to etcd://<secret>@h/p failed; GET s3://b/k?X-Sig=<secret>&n=<secret> true \xff 12345"
    assert without_secrets(line, secrets) == hidden


def test_logs_are_left_out_where_the_settings_cannot_be_read(tmp_path: Path) -> None:
    log, to = tmp_path / "gateway.log", tmp_path / "fault.tar.gz"
    log.write_text("a line\n")
    arguments = (
        "debug",
        "bundle",
        "--to",
        str(to),
        "-b",
        CLOSED,
        "--log",
        str(log),
        "--config",
        "no-such.toml",
    )
    done = dragoman(*arguments, environment={})
    assert done.returncode == 0, done.stderr
    members = members_of(to)
    assert not any(name.startswith("logs/") for name in members)
    assert f"log {log}" in json.loads(members["failures.json"])
