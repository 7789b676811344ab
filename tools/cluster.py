"""`make cluster`: a gateway that keeps nothing, with etcd and S3 beside it, until Ctrl-C.

python -m tools.cluster [--directory data-cluster] [--port 9092] [--admin-port 9644]

Plain processes on loopback: etcd has the offset ledger, SeaweedFS serves S3 for the record batches. Both keep
their files in the directory, so the next `make cluster` goes on with them; the gateway keeps nothing there.
"""

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.debian import PackageMissing
from tests.support.etcd import etcd_program, without_settings
from tests.support.ports import free_ports
from tools.free_port import is_free

ROOT: Final = Path(__file__).resolve().parent.parent
HOST: Final = "127.0.0.1"
BUCKET: Final = "dragoman"
ACCESS_KEY: Final = "dragoman"
REGION: Final = "us-east-1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
VOLUME_MB: Final = 1024
PORTS: Final = (
    *("etcd", "etcd_peer", "master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc"),
    *("s3", "s3_grpc"),
)


class CannotStart(Exception):
    """One sentence for the user."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a cluster: its ports and the key of its S3 are made once, and kept."""

    directory: Path
    ports: Mapping[str, int]
    secret_key: str

    @property
    def etcd(self) -> str:
        return f"{HOST}:{self.ports['etcd']}"

    @property
    def s3(self) -> str:
        return f"http://{HOST}:{self.ports['s3']}"

    @property
    def environment(self) -> dict[str, str]:
        """With the credentials, which are in no URL."""
        names = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
        }
        foreign = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
        return {**{name: value for name, value in os.environ.items() if name not in foreign}, **names}


def place_at(directory: Path) -> Place:
    """Errors: CannotStart."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = directory / "cluster.json"
    if not file.exists():
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        draft = file.with_suffix(".draft")
        with open(draft, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
            json.dump({"ports": ports, "secret_key": secrets.token_urlsafe(24)}, written)
        draft.replace(file)
    kept = json.loads(file.read_text())
    taken = [f"{name} {port}" for name, port in kept["ports"].items() if not is_free(port)]
    if taken:
        raise CannotStart(
            f"ports of the cluster in {directory} are taken ({', '.join(taken)}): is it running already? "
            "Stop it, or choose another place with CLUSTER="
        )
    return Place(directory, kept["ports"], kept["secret_key"])


class Program:
    """A child process with a log of its own, stopped by its handle."""

    def __init__(
        self, name: str, command: Sequence[str], place: Place, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._log = place.directory / f"{name}.log"
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C on the terminal is for the gateway first, then for its stores.
            self.process = subprocess.Popen(
                list(command),
                cwd=place.directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, serves: Callable[[], bool]) -> None:
        """Errors: CannotStart."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not serves():
            if self.process.poll() is not None:
                raise CannotStart(f"{self.name} ended with code {self.process.returncode}: see {self._log}")
            if time.monotonic() > deadline:
                raise CannotStart(f"{self.name} does not answer after {START_TIMEOUT_S:g} s: see {self._log}")
            time.sleep(0.1)

    def wait(self) -> None:
        """For its end, which was asked for."""
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_etcd(place: Place) -> Program:
    """Errors: CannotStart."""
    try:
        program = etcd_program()
    except PackageMissing as error:
        raise CannotStart(f"etcd is not here: {error}; install etcd 3.4 or newer on PATH") from error
    clients, peers = f"http://{place.etcd}", f"http://{HOST}:{place.ports['etcd_peer']}"
    command = [
        *(str(program.path), f"--data-dir={place.directory / 'etcd'}"),
        *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
        *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
        f"--initial-cluster=default={peers}",
    ]
    started = Program("etcd", command, place, without_settings(program.environment))
    started.wait_until(lambda: _answers(f"{clients}/health"))
    return started


def start_s3(place: Place) -> Program:
    """SeaweedFS with the bucket. Errors: CannotStart."""
    ports, weed = place.ports, Path(sys.executable).with_name("weed")
    if not weed.exists():
        raise CannotStart("SeaweedFS is not installed: run it as `make cluster`")
    files = place.directory / "s3"
    logs = place.directory / "s3-logs"
    for made in (files, logs):
        made.mkdir(exist_ok=True)
    identities = place.directory / "s3.json"
    keys = {"accessKey": ACCESS_KEY, "secretKey": place.secret_key}
    identities.touch(0o600)
    identities.write_text(
        json.dumps({"identities": [{"name": "dragoman", "credentials": [keys], "actions": ["Admin"]}]})
    )
    command = [
        *(str(weed), f"-logdir={logs}", "server"),
        *(f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={files}"),
        *(f"-master.port={ports['master']}", f"-master.port.grpc={ports['master_grpc']}"),
        *(f"-master.volumeSizeLimitMB={VOLUME_MB}", "-master.telemetry=false"),
        *(f"-volume.port={ports['volume']}", f"-volume.port.grpc={ports['volume_grpc']}", "-volume.max=0"),
        "-volume.preStopSeconds=0",
        *("-filer", f"-filer.port={ports['filer']}", f"-filer.port.grpc={ports['filer_grpc']}"),
        *("-s3", f"-s3.port={ports['s3']}", f"-s3.port.grpc={ports['s3_grpc']}", f"-s3.config={identities}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.ip.bind={HOST}"),
    ]
    started = Program("s3", command, place, os.environ)
    ready = f"http://{HOST}:{ports['filer']}/ready"
    started.wait_until(lambda: _takes_files(ready) and _answers(place.s3))
    _make_bucket(place)
    return started


def _takes_files(url: str) -> bool:
    """The filer has a volume to write to."""
    request = urllib.request.Request(url, b"x", {"Content-Type": "text/plain"}, method="PUT")
    return _answers(request)


def _answers(request: urllib.request.Request | str) -> bool:
    """Also if only to refuse: S3 wants a signature."""
    # Through no proxy, whatever the environment says.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 403
    except OSError:
        return False


def _make_bucket(place: Place) -> None:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError

    client: Any = boto3.client(
        "s3",
        endpoint_url=place.s3,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=place.secret_key,
        region_name=REGION,
        config=Config(s3={"addressing_style": "path"}),
    )
    try:
        client.create_bucket(Bucket=BUCKET)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
            raise CannotStart(f"the bucket could not be made: {error}") from error


def gateway_command(place: Place, port: int, admin_port: int) -> list[str]:
    return [
        *(str(Path(sys.executable).with_name("dragoman")), "serve"),
        *("--listen", f"PLAINTEXT://{HOST}:{port}", "--admin", f"{HOST}:{admin_port}"),
        *("--metadata", f"etcd://{place.etcd}/dragoman"),
        *("--data", f"s3://{BUCKET}/data?endpoint={place.s3}"),
    ]


def run(place: Place, port: int, admin_port: int) -> int:
    """Until Ctrl-C, or the gateway ends. Its exit code. Errors: CannotStart."""
    stores: list[Program] = []
    try:
        for start in (start_etcd, start_s3):
            stores.append(start(place))
        _say(f"etcd   {place.etcd} (the offset ledger)      S3   {place.s3}/{BUCKET} (record batches)")
        _say(f"Both keep their files in {place.directory}; the gateway keeps nothing. Ctrl-C stops all.")
        gateway = subprocess.Popen(
            gateway_command(place, port, admin_port), env=place.environment, start_new_session=True
        )
        try:
            return gateway.wait()
        except KeyboardInterrupt:
            gateway.send_signal(signal.SIGINT)
            with contextlib.suppress(KeyboardInterrupt):
                gateway.wait(STOP_TIMEOUT_S)
            return 0
        finally:
            if gateway.poll() is None:
                gateway.kill()
                gateway.wait()
    finally:
        if stores:
            _say("Stopping the stores, which takes about ten seconds.")
        for store in stores:
            store.process.terminate()
        for store in stores:
            store.wait()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "data-cluster")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--admin-port", type=int, default=9644)
    given = parser.parse_args()
    # As Ctrl-C: the stores are stopped after the gateway.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(place_at(given.directory.absolute()), given.port, given.admin_port)
    except CannotStart as error:
        _say(f"make cluster: {error}")
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
