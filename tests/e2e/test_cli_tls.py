"""The commands over TLS: whom they trust, what they show, and one sentence when it does not work."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Issued
from tests.support.gateway import Gateway, GatewayFactory

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0
PASSWORD = "correct-horse-battery"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def started(
    factory: GatewayFactory, authority: Authority, server: Issued, client_auth: str, *more: str
) -> Gateway:
    settings = {"certificate": server.certificate, "key": server.key, "ca": authority.file}
    options = [word for name, path in settings.items() for word in ("--set", f"tls.{name}={path}")]
    gateway = factory(
        [*options, "--set", f"tls.client_auth={client_auth}", *more], listen="SSL://127.0.0.1:0"
    )
    gateway.start()
    return gateway


@pytest.fixture
def gateway(gateway_factory: GatewayFactory, authority: Authority) -> Gateway:
    """Has an SSL listener, then a PLAINTEXT one; client certificates are checked if there are any."""
    plaintext = ("--listen", "PLAINTEXT://127.0.0.1:0")
    return started(gateway_factory, authority, authority.server(), "optional", *plaintext)


@pytest.fixture
def strict(gateway_factory: GatewayFactory, authority: Authority) -> Gateway:
    """Refuses clients without a certificate."""
    return started(gateway_factory, authority, authority.server(), "required")


def run(
    *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **(env or {})},
    )


def listing(bootstrap: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run("topics", "list", "--bootstrap", bootstrap, *flags, env=env)


def files(client: Issued) -> Sequence[str]:
    return ("--tls-cert", str(client.certificate), "--tls-key", str(client.key))


def test_each_command_goes_over_tls(gateway: Gateway, authority: Authority) -> None:
    where = ("--bootstrap", gateway.bootstrap, "--tls-ca", str(authority.file))
    assert run("topics", "create", "secret", *where).returncode == 0
    assert run("produce", "secret", *where, stdin="one\ntwo\n").returncode == 0
    assert run("consume", "secret", "--to-end", *where).stdout == "one\ntwo\n"
    (described,) = json.loads(run("topics", "describe", "secret", "--json", *where).stdout)
    assert described["partitions"][0]["high_watermark"] == 2
    assert run("topics", "alter", "secret", "--partitions", "3", *where).returncode == 0
    assert run("topics", "delete", "secret", *where).returncode == 0
    assert run("topics", "list", *where).stdout.strip().splitlines()[1:] == []


def test_a_client_certificate_opens_a_listener_that_requires_one(
    strict: Gateway, authority: Authority
) -> None:
    trusting = ("--tls-ca", str(authority.file))
    assert listing(strict.bootstrap, *trusting, *files(authority.client())).returncode == 0
    without = listing(strict.bootstrap, *trusting)
    assert without.returncode == 1 and "--tls-cert" in without.stderr


def test_the_password_of_a_key_comes_from_the_environment(strict: Gateway, authority: Authority) -> None:
    locked = authority.server("locked", password=PASSWORD.encode())
    flags = ("--tls-ca", str(authority.file), *files(locked))
    assert listing(strict.bootstrap, *flags, DRAGOMAN_TLS_KEY_PASSWORD=PASSWORD).returncode == 0
    for wrong in ("", "tr0ub4dor"):
        refused = listing(strict.bootstrap, *flags, DRAGOMAN_TLS_KEY_PASSWORD=wrong)
        assert refused.returncode == 2 and "DRAGOMAN_TLS_KEY_PASSWORD" in refused.stderr
        assert wrong not in refused.stderr or not wrong


def test_ssl_before_the_address_trusts_the_machine_and_its_environment(
    gateway: Gateway, authority: Authority
) -> None:
    trusted = listing(f"SSL://{gateway.bootstrap}", SSL_CERT_FILE=str(authority.file))
    assert trusted.returncode == 0, trusted.stderr
    unknown = listing(f"ssl://{gateway.bootstrap}")
    assert unknown.returncode == 1 and "--tls-ca" in unknown.stderr


def test_a_certificate_of_another_ca_is_not_believed(gateway: Gateway, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    refused = listing(gateway.bootstrap, "--tls-ca", str(stranger.file))
    assert refused.returncode == 1 and "not trusted" in refused.stderr


def test_a_certificate_of_another_name_is_not_believed(
    gateway_factory: GatewayFactory, authority: Authority
) -> None:
    elsewhere = authority.server("elsewhere", "elsewhere.example")
    gateway = started(gateway_factory, authority, elsewhere, "none")
    refused = listing(gateway.bootstrap, "--tls-ca", str(authority.file))
    assert refused.returncode == 1 and "IP address mismatch" in refused.stderr


def test_tls_and_plaintext_that_meet_each_other_end_in_a_sentence(
    gateway: Gateway, authority: Authority
) -> None:
    over_tls, plaintext = (listener.address for listener in gateway.ready.listeners)
    for refused in (listing(over_tls), listing(plaintext, "--tls-ca", str(authority.file))):
        assert refused.returncode == 1 and "SSL://" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("bootstrap", "flags", "named"),
    [
        ("PLAINTEXT://127.0.0.1:1", ["--tls-ca", "{ca}"], "PLAINTEXT://"),
        ("SASL_SSL://127.0.0.1:1", [], "SASL_SSL"),
        ("SSL://127.0.0.1:1", ["--tls-key", "{key}"], "--tls-cert"),
        ("SSL://127.0.0.1:1", ["--tls-ca", "/nowhere.pem"], "--tls-ca"),
        ("SSL://127.0.0.1:1", ["--tls-ca", "{key}"], "--tls-ca"),
        ("SSL://127.0.0.1:1", ["--tls-cert", "{ca}"], "--tls-cert"),
        ("SSL://127.0.0.1:1", ["--tls-cert", "{cert}", "--tls-key", "/nowhere.pem"], "--tls-key"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_a_connection_is_tried(
    authority: Authority, bootstrap: str, flags: list[str], named: str
) -> None:
    client = authority.client()
    paths = {"ca": authority.file, "cert": client.certificate, "key": client.key}
    refused = listing(bootstrap, *(flag.format_map(paths) for flag in flags))
    assert refused.returncode == 2 and named in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
