"""Has the objects of an audit read by a job: their tasks go to it through a named pipe, and what it finds
comes back in its lines."""

import asyncio
import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gateway.cli.job_process import job_lines
from gateway.cli.output import UsageError
from gateway.housekeeping.merging import job_options
from gateway.offline.audit import TakeResult
from gateway.settings import Storage
from gateway.store_assembly import data_url_of, urls_of
from ledger.auditing.tasks import ObjectTask
from pipeline.audit_lines import encoded_tasks, result_of

PIPE: Final = "objects"
LOOK_S: Final = 0.1


class JobEngine:
    """An `AuditEngine` in a job."""

    def __init__(self, storage: Storage, engine: Mapping[str, Any]) -> None:
        """`engine`: as `EngineOptions` has it in a request. UsageError if no other process can reach the
        records."""
        far = job_options(storage)
        if far is None:
            raise UsageError("--engine: the records of this ledger are in memory, where no job can read them")
        self._url = data_url_of(urls_of(storage))
        self._request: dict[str, Any] = {"peer": {}, "job": "audit", "far": far, **engine}

    async def __call__(self, tasks: Iterator[ObjectTask], take: TakeResult) -> None:
        """Errors: ClientError, UsageError, StoreError."""
        with tempfile.TemporaryDirectory(prefix="dragoman-") as directory:
            path = Path(directory, PIPE)
            os.mkfifo(path, 0o600)
            running = _Running(path, tasks, take)
            options = {"objects": str(path), "data_url": self._url}
            work = asyncio.ensure_future(
                asyncio.to_thread(running.run, {**self._request, "options": options})
            )
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                running.end()
                with suppress(Exception):
                    await work
                raise


class _Running:
    """One job, from a thread that waits for it."""

    def __init__(self, path: Path, tasks: Iterator[ObjectTask], take: TakeResult) -> None:
        self._path = path
        self._tasks = tasks
        self._take = take
        self._sent: deque[ObjectTask] = deque()
        """Whose results have not come."""
        self._process: subprocess.Popen[str] | None = None
        self._failure: BaseException | None = None

    def run(self, request: dict[str, Any]) -> None:
        writer = threading.Thread(target=self._write, name="tasks of the audit", daemon=True)
        writer.start()
        try:
            for key, value in job_lines(request, self._started):
                if key == "result":
                    self._take(self._sent.popleft(), result_of(value))
        except Exception as error:
            # Of a job that was ended because its tasks have failed.
            raise self._failure or error from None
        finally:
            self._end_writer(writer)
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """From another thread: the job ends with its stdin."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):
                process.stdin.close()

    def _started(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _write(self) -> None:
        try:
            with self._path.open("wb") as pipe:
                for task, data in _with_data(self._tasks):
                    self._sent.append(task)
                    pipe.write(data)
        except BrokenPipeError:
            # The job has ended, and says why.
            pass
        except BaseException as error:
            self._failure = error
            self.end()

    def _end_writer(self, writer: threading.Thread) -> None:
        """It waits for a reader before its first task, also for one that has died."""
        while writer.is_alive():
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            writer.join(LOOK_S)
            os.close(descriptor)


def _with_data(tasks: Iterator[ObjectTask]) -> Iterator[tuple[ObjectTask, bytes]]:
    for task in tasks:
        (data,) = encoded_tasks([task])
        yield task, data
