"""A standalone Spark cluster on loopback, of the scripts in the PyPI package pyspark: a master, and two
workers of one core and 1 GiB each.

    with running_spark_cluster(tmp_path) as cluster:  # all three are ready
        ...  # cluster.url: a master as spark-submit takes it

Master and workers are processes of their own, each in a process group; a worker's executors are in its group.
Everything they write is below the directory that is given. The environment of the caller is theirs (stores'
credentials, for example), except what would configure another Spark.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.support.ports import EndedEarly, free_ports, with_other_ports
from tests.support.processes import Descendant, descendants, kill_group, tail_of

HOST: Final = "127.0.0.1"
WORKERS: Final = 2
OTHER_HOSTS: Final = sys.platform == "linux"
"""Each worker has an address of its own, as Spark runs no second attempt of a task on the host of the first.
Elsewhere 127.0.0.1 is the only address of the loopback."""
CORES: Final = 1
MEMORY: Final = "1g"
START_TIMEOUT_S: Final = 600.0
CALL_TIMEOUT_S: Final = 10.0
QUICK_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For processes that live for a minute: what starts quickly matters more than what runs quickly."""
JOB_CONF: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
PYTHON_DAEMON: Final = "pyspark.daemon"
"""Parts of the command lines of an executor and of the Python next to it."""


@dataclass
class _Daemon:
    """A master or a worker: what starts it, and its process while it runs."""

    name: str
    main_class: str
    arguments: Sequence[str]
    log: Path
    host: str = HOST
    process: subprocess.Popen[bytes] | None = None


class SparkCluster:
    """`url` is known, and stays the same, from `start` on."""

    def __init__(self, directory: Path, workers: int = WORKERS) -> None:
        self.directory = directory
        self.url = ""
        self._web_port = 0
        self._count = workers
        self._master: _Daemon | None = None
        self._workers: list[_Daemon] = []

    def start(self) -> None:
        """Master and workers are ready when this returns. Errors: RuntimeError with their logs."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "conf").mkdir(exist_ok=True)
        with_other_ports(self._start)

    def stop(self) -> None:
        """At once: there is nothing to be left in order."""
        for daemon in [*self._workers, *([self._master] if self._master else [])]:
            self._kill(daemon)

    def executors(self) -> list[Descendant]:
        """The JVMs that carry out tasks, of all workers and jobs."""
        return [each for each in self._descendants() if EXECUTOR in each.command]

    def pythons(self) -> list[Descendant]:
        """The Python daemons next to these JVMs, and what they have forked."""
        return [each for each in self._descendants() if PYTHON_DAEMON in each.command]

    def pythons_of(self, executor: int) -> list[Descendant]:
        """Those next to one executor, by its process."""
        return [each for each in descendants(executor) if PYTHON_DAEMON in each.command]

    def kill_executor(self, number: int = 0) -> bool:
        """SIGKILL to an executor's JVM, if there is one: its Python and its shuffle files go with it."""
        return _kill_one(self.executors(), number)

    def kill_python(self, number: int = 0) -> bool:
        """SIGKILL to a Python of an executor, which lives on."""
        return _kill_one(self.pythons(), number)

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and its executors; `start_worker` brings it back."""
        self._kill(self._workers[number])

    def start_worker(self, number: int) -> None:
        """Ready when this returns."""
        self._launch(self._workers[number])
        self._wait_for_workers()

    def log_tails(self) -> str:
        """Ends of all logs there are, those of executors included."""
        found = [path for path in sorted(self.directory.rglob("*")) if path.suffix == ".log"]
        found += sorted(self.directory.glob("work-*/*/*/stderr"))
        return "\n".join(f"-- {path.relative_to(self.directory)}\n{tail_of(path, 4096)}" for path in found)

    def _start(self) -> None:
        port, self._web_port, *worker_ports = free_ports(2 + 2 * self._count)
        self.url = f"spark://{HOST}:{port}"
        self._master = _Daemon(
            "master",
            "org.apache.spark.deploy.master.Master",
            ["--host", HOST, "--port", str(port), "--webui-port", str(self._web_port)],
            self.directory / "master.log",
        )
        self._workers = [
            self._worker(number, *worker_ports[2 * number : 2 * number + 2]) for number in range(self._count)
        ]
        for daemon in [self._master, *self._workers]:
            self._launch(daemon)
        self._wait_for_workers()

    def _worker(self, number: int, port: int, web_port: int) -> _Daemon:
        host = f"127.0.0.{number + 1}" if OTHER_HOSTS else HOST
        ports = ["--host", host, "--port", str(port), "--webui-port", str(web_port)]
        size = ["--cores", str(CORES), "--memory", MEMORY]
        place = ["--work-dir", str(self.directory / f"work-{number}")]
        return _Daemon(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            [*ports, *size, *place, self.url],
            self.directory / f"worker-{number}.log",
            host,
        )

    def _launch(self, daemon: _Daemon) -> None:
        with daemon.log.open("ab") as log:
            daemon.process = subprocess.Popen(
                [str(_spark_home() / "bin" / "spark-class"), daemon.main_class, *daemon.arguments],
                cwd=self.directory,
                env=self._environment(daemon.host),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, host: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))
        }
        return {
            **inherited,
            "SPARK_HOME": str(_spark_home()),
            "SPARK_CONF_DIR": str(self.directory / "conf"),
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
            "PYSPARK_PYTHON": sys.executable,
        }

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        wanted = sum(_is_running(worker) for worker in self._workers)
        while self._alive_workers() < wanted:
            ended = [each.name for each in [self._master, *self._workers] if each and not _is_running(each)]
            if self._count - wanted < len(ended) or time.monotonic() > deadline:
                tails = self.log_tails()
                self.stop()
                raise (EndedEarly if ended else RuntimeError)(f"Spark did not come up ({ended}):\n{tails}")
            time.sleep(0.1)

    def _alive_workers(self) -> int:
        """As the master counts them, by the addresses of those that run: a killed one is alive to it for a
        while."""
        with suppress(OSError, ValueError):
            # Through no proxy, whatever the environment says.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://{HOST}:{self._web_port}/json/", timeout=CALL_TIMEOUT_S) as response:
                shown: dict[str, Any] = json.load(response)
            return sum(worker["state"] == "ALIVE" for worker in shown["workers"])
        return 0

    def _descendants(self) -> list[Descendant]:
        return [
            each
            for worker in self._workers
            if worker.process is not None and _is_running(worker)
            for each in descendants(worker.process.pid)
        ]

    def _kill(self, daemon: _Daemon) -> None:
        if daemon.process is None:
            return
        # Python daemons put themselves into groups of their own.
        others = descendants(daemon.process.pid)
        kill_group(daemon.process)
        for each in others:
            if EXECUTOR in each.command or PYTHON_DAEMON in each.command:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)


def _is_running(daemon: _Daemon) -> bool:
    return daemon.process is not None and daemon.process.poll() is None


def _kill_one(found: Sequence[Descendant], number: int) -> bool:
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(found[number % len(found)].pid, signal.SIGKILL)
        return True
    return False


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed")
    return Path(spec.origin).parent


@contextmanager
def running_spark_cluster(directory: Path, workers: int = WORKERS) -> Iterator[SparkCluster]:
    cluster = SparkCluster(directory, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        # Captured: pytest shows it only when the test has failed.
        sys.stdout.write(f"{cluster.log_tails()}\n")
