"""How `dragoman compact segments` reaches the gateway and starts its job, and what it says if it cannot."""

import sys
from pathlib import Path

import pytest

from gateway.cli.client import ClientError
from gateway.cli.job_process import TlsFiles, job_lines, job_request
from gateway.cli.output import UsageError
from gateway.settings import Internal, Settings, Tls

INTERNAL = Internal(socket="none", listen=("SSL://127.0.0.1:9094",), principals="User:CN=jobs")
SETTINGS = Settings(internal=INTERNAL, tls=Tls(ca="ca.pem"))


@pytest.mark.parametrize("files", [TlsFiles(), TlsFiles(ca="ca.pem"), TlsFiles(certificate="job.pem")])
def test_a_tls_listener_is_not_tried_without_a_certificate(files: TlsFiles) -> None:
    with pytest.raises(UsageError, match="--tls-ca, and --tls-cert"):
        job_request(SETTINGS, files)


def test_the_key_may_be_in_the_file_of_the_certificate() -> None:
    peer = job_request(SETTINGS, TlsFiles("ca.pem", "job.pem"))["peer"]
    assert (peer["ca"], peer["certificate"], peer["key"]) == ("ca.pem", "job.pem", "job.pem")
    assert job_request(SETTINGS, TlsFiles("ca.pem", "job.pem", "key.pem"))["peer"]["key"] == "key.pem"


def test_a_job_that_cannot_be_started_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(ClientError, match="the job cannot be started: No such file"):
        list(job_lines({}))


def test_a_job_that_writes_garbage_and_dies_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    child.write_text("#!/bin/sh\nprintf '\\377\\376\\n'\nexit 9\n")
    child.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(child))
    with pytest.raises(ClientError, match="the job ended with 9: "):
        list(job_lines({}))
