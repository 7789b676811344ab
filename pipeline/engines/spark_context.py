"""Where Spark runs, what it needs there, and what it means when it fails."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.rounds import JobError

if TYPE_CHECKING:
    from pyspark import SparkContext

LOCAL: Final = "local[*,4]"
"""All cores of this machine; a Spark task is tried four times, as on a cluster."""
EXECUTOR_PYTHON: Final = "spark.pyspark.python"
"""What spark-submit would make of it, so that the property is the same with and without it."""
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of what spark-submit starts."""
STANDALONE: Final = "spark://"
MASTER_S: Final = 5.0
END_S: Final = 8.0
PIP_LINE: Final = "pip install 'dragoman[spark]'"
MIN_JAVA: Final = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_REASON = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)


class NotInstalled(Exception):
    """The engine cannot run here; one sentence says what to install or to set."""


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """Where Spark runs: a master as spark-submit takes it, and properties `spark.*`."""

    master: str = LOCAL
    conf: Mapping[str, str] | None = None

    @property
    def is_here(self) -> bool:
        """Master and executors are on this machine."""
        return self.master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def place_of(master: str, conf: Mapping[str, str]) -> SparkPlace:
    """As a request has it. Without a master that of spark-submit, if that has started this process; else all
    cores of this machine."""
    return SparkPlace(master or ("" if SUBMITTED in os.environ else LOCAL), conf)


@contextmanager
def spark_context(place: SparkPlace, name: str = "dragoman compact segments") -> "Iterator[SparkContext]":
    """Start Spark, and stop it in the end. Errors: NotInstalled; JobError if the master is out of reach, and
    in the place of what Spark raises within."""
    check_spark()
    _check_master(place.master)
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    os.environ.setdefault("PYSPARK_PYTHON", (place.conf or {}).get(EXECUTOR_PYTHON, sys.executable))
    if place.is_here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf().setAppName(name)
    if place.master:
        conf.setMaster(place.master)
    for key, value in _properties(place).items():
        conf.set(key, value)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(conf=conf)
    except (Py4JError, PySparkException, OSError) as error:
        where = place.master or "the master of spark-submit"
        raise JobError(f"Spark does not start on {where}: {_reason(error)}") from error
    finally:
        # It has put in a handler of its own, also where Ctrl-C is to be ignored.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupted)
    try:
        yield context
    except Exception as error:
        if sentence := explained(error):
            raise JobError(sentence) from error
        raise
    finally:
        # Of a Spark that has died there is nothing to stop.
        with suppress(Exception):
            context.stop()


def java_pid(context: "SparkContext") -> int:
    """The process of Java that this one drives Spark by."""
    # pyspark has no public way to it.
    return int(context._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001


def end_java() -> None:
    """End the Java that this process has started, if it has, and wait until it has ended."""
    # Nothing is imported here: this is also called while another thread imports pyspark.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return
    # It ends with its stdin, after it has stopped what it has started.
    process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_spark() -> None:
    """NotInstalled unless pyspark and a Java for it are installed."""
    if find_spec("pyspark") is None:
        raise NotInstalled(f"the Spark engine needs pyspark: {PIP_LINE}")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"install a JDK {MIN_JAVA} or newer, or name one in JAVA_HOME"
    if java is None or not Path(java).exists():
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none on PATH"
        raise NotInstalled(f"the Spark engine needs Java, and {where}: {remedy}")
    version = _java_version(java)
    if version < MIN_JAVA:
        raise NotInstalled(f"the Spark engine needs Java {MIN_JAVA}, and {java} is Java {version}: {remedy}")


def _properties(place: SparkPlace) -> dict[str, str]:
    found = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if place.is_here:
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return found | dict(place.conf or {})


def _java_version(java: str) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"the Spark engine needs Java, and {java} does not run: {error}") from error
    found = _JAVA_VERSION.search(said.stderr + said.stdout)
    if found is None:
        raise NotInstalled(f"the Spark engine needs Java, and {java} -version does not say which it is")
    return int(found[1])


def _check_master(master: str) -> None:
    """JobError if no master of a standalone cluster listens: Spark would try for a minute."""
    if not master.startswith(STANDALONE):
        return
    reasons: list[str] = []
    for each in master.removeprefix(STANDALONE).split(","):
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_S).close()
        except OSError as error:
            reasons.append(f"{each}: {error.strerror or error}")
        except ValueError:
            reasons.append(f"{each} has no port")
        else:
            return
    raise JobError(
        f"there is no Spark master at {master} ({'; '.join(reasons)}): start it, or correct --master"
    )


def explained(error: Exception) -> str:
    """In a sentence what Spark says in pages; empty for an error that is not of Spark."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    if isinstance(error, Py4JNetworkError | ConnectionError):
        return "Spark's Java process on this machine has ended: run the job again"
    if not isinstance(error, Py4JError):
        return ""
    text = str(error)
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"the executors run another Python than this one ({sys.version_info[0]}.{sys.version_info[1]}): "
            "set PYSPARK_PYTHON to one of the same minor version"
        )
    if found := _NO_PYTHON.search(text):
        return (
            f"the executors have no Python {found[1]}: set PYSPARK_PYTHON to one that they have, with "
            "Dragoman installed or sent along (spark.archives)"
        )
    if "ModuleNotFoundError" in text or "No module named" in text:
        return (
            "the executors do not have Dragoman: install it there, set PYSPARK_PYTHON to the Python that has "
            "it, or send the environment along (spark.archives)"
        )
    return f"Spark has given up a task: {_reason(error)}"


def _reason(error: BaseException) -> str:
    """The most telling line: the last error of a Python traceback in it, else the first line."""
    text = str(error)
    found = [each for each in _REASON.findall(text) if "Py4J" not in each]
    return (found[-1] if found else text.strip().partition("\n")[0])[:300]
