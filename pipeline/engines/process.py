"""A job in a process of its own, whichever engine carries it out.

`python -m pipeline.engines.process` reads one line of JSON from stdin, a `JobRequest`, and ends when stdin
ends: so it never outlives the process that has started it. Each line on stdout is a JSON object with one key:

| key      | value                                                                          |
|----------|--------------------------------------------------------------------------------|
| progress | what was done so far: now and then                                             |
| planned  | of a plan: one part of what would be done                                      |
| note     | a sentence for the operator                                                    |
| summary  | the end of a job: what was done, how long it took and what it cost             |
| error    | the end of a job that failed: one sentence                                     |

Nothing else is written to stdout: what Spark and its Java write goes to stderr.

Exit codes: 0 after a summary; after an error 2 if the engine cannot run here or the request names what there
is not, 4 if a store is out of reach or damaged, and else 1.
"""

import asyncio
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from adapters.open import FarOptions, FarStores, open_job_segments
from ledger.errors import StoreError
from pipeline.engines.spark_context import NotInstalled, end_java, place_of, spark_context
from pipeline.links import InheritedLink, Link, PlainLink, TlsLink, UnixLink
from pipeline.peer import PeerClient, PeerRefused, PeerUnavailable
from pipeline.rounds import JobError
from pipeline.stores import BlockingStore

if TYPE_CHECKING:
    from pyspark import SparkContext

LOCAL: Final = "local"
SPARK: Final = "spark"
ENGINES: Final = (LOCAL, SPARK)
JOBS: Final[Mapping[str, str]] = {
    "adopt": "pipeline.jobs.adopt",
    "audit": "pipeline.jobs.audit",
    "export": "pipeline.jobs.export",
    "ledger": "pipeline.jobs.ledger",
    "segments": "pipeline.jobs.segments",
    "translate": "pipeline.jobs.translate",
}
"""The module of each job, imported when it is wanted: it has `run(request: JobRequest, say: Say)`."""

NICENESS: Final = 19
STATUS: Final = "/proc/{}/status"
MAX_DATA_BYTES: Final = 512 * 1024 * 1024
"""What a job of the local engine may map for itself, if the system counts that. It uses less than half (a
test measures it); beyond this there is an error in it, and it ends instead of taking the memory of the
gateway."""

Say: TypeAlias = Callable[[str, object], None]
"""Write one line: its key and its value."""


class RequestError(Exception):
    """The request names what there is not, or cannot be carried out as it is."""


class PeerPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the gateway: an inherited socket (`fd`), a Unix socket (`path`), or `host` and `port`,
    with TLS if there is a `certificate`. `once`: a gateway that is gone does not come back."""

    fd: int = -1
    path: str = ""
    host: str = ""
    port: int = 0
    ca: str = ""
    certificate: str = ""
    key: str = ""
    once: bool = False

    def link(self) -> Link:
        if self.fd >= 0:
            return InheritedLink(self.fd)
        if self.path:
            return UnixLink(Path(self.path), connects_again=not self.once)
        if self.certificate:
            return TlsLink(self.host, self.port, Path(self.ca), Path(self.certificate), Path(self.key))
        return PlainLink(self.host, self.port)


class SparkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where Spark runs: a master as spark-submit takes it, and properties `spark.*`. Without a master that of
    spark-submit, if this process runs below it; else all cores of this machine."""

    master: str = ""
    conf: dict[str, str] = {}


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the job is to do. `far` has settings `storage.*` of stores elsewhere that the URL does not say, no
    secrets; `policy` fields of `ledger.merging.plan.MergePolicy` that are not the default; `pins` what the
    ids of the pins of a merge job begin with, in hex; `options` what this job alone has."""

    peer: PeerPlace
    job: str = "segments"
    engine: str = LOCAL
    topics: tuple[str, ...] = ()
    dry_run: bool = False
    far: dict[str, Any] = {}
    policy: dict[str, int] = {}
    pins: str = ""
    spark: SparkRequest = SparkRequest()
    options: dict[str, Any] = {}


class Opened(NamedTuple):
    """What a job works with. `url`: that of the store, as the gateway has it."""

    peer: PeerClient
    store: BlockingStore
    url: str

    @property
    def is_far(self) -> bool:
        """The store is on other machines."""
        return not self.url.startswith(("file:", "objects+file:"))


@contextmanager
def opened(request: JobRequest) -> Iterator[Opened]:
    """The gateway and its store. Errors: PeerUnavailable, PeerRefused; StoreError, ValueError."""
    with ExitStack() as stack:
        peer = stack.enter_context(PeerClient(request.peer.link()))
        url = peer.describe().data_url
        runner = stack.enter_context(asyncio.Runner())
        segments = open_job_segments(url, far=FarStores(FarOptions(**request.far)))
        yield Opened(peer, stack.enter_context(BlockingStore(segments, runner)), url)


@contextmanager
def spark_of(request: JobRequest) -> "Iterator[SparkContext]":
    """Spark as the request has it. Errors: NotInstalled; JobError if the master is out of reach."""
    place = place_of(request.spark.master, request.spark.conf)
    with spark_context(place, f"dragoman {request.job}") as context:
        yield context


def max_rss_bytes(pid: int | str = "self") -> int:
    """The most memory that a process has had, this one by default."""
    # On Linux the counter of getrusage begins with the memory of the process that started this one.
    with suppress(OSError, ValueError, IndexError):
        text = Path(STATUS.format(pid)).read_text()
        (line,) = (each for each in text.splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    if pid != "self":
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def main() -> int:
    """Run one job. The exit code."""
    # Ctrl-C on a terminal is for the process that has started this one: it closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say = _own_stdout()
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    try:
        _run(msgspec.json.decode(line, type=JobRequest), say)
    except (JobError, PeerUnavailable, PeerRefused, ValueError, TypeError) as error:
        return _failed(say, str(error), 1)
    except (RequestError, NotInstalled) as error:
        return _failed(say, str(error), 2)
    except StoreError as error:
        return _failed(say, str(error), 4)
    except MemoryError:
        return _failed(say, f"the job needs more than {MAX_DATA_BYTES // 2**20} MiB of memory", 1)
    finally:
        end_java()
    return 0


def _run(request: JobRequest, say: Say) -> None:
    module = JOBS.get(request.job)
    if module is None:
        raise RequestError(f"there is no job {request.job}: this build has {', '.join(JOBS)}")
    if request.engine not in ENGINES:
        raise RequestError(f"there is no engine {request.engine}: this build has {', '.join(ENGINES)}")
    if request.engine == LOCAL:
        with suppress(OSError):
            os.nice(NICENESS)
        _bound_memory()
    import_module(module).run(request, say)


def _failed(say: Say, sentence: str, code: int) -> int:
    say("error", sentence)
    return code


def _own_stdout() -> Say:
    """Lines of this process alone: whatever it starts, and what prints in it, writes to stderr."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(key: str, value: object) -> None:
        lines.write(json.dumps({key: value}) + "\n")
        lines.flush()

    return say


def _end_with_stdin() -> None:
    """At once: there is nothing to be left in order. What was written in vain is an orphan, and the gateway
    releases the pin: at once if it has started the job, else when it expires."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    with suppress(Exception):
        end_java()
    os._exit(1)


def _bound_memory() -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))


if __name__ == "__main__":
    # What jobs import from this module is the same as what runs them.
    from pipeline.engines.process import main as main_of_module

    sys.exit(main_of_module())
