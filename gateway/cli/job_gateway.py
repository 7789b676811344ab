"""The gateway of a job: the running one, or, if none runs on this ledger, one that is started for the job and
ends with it."""

import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.cli.offline_state import check_there
from gateway.cli.output import UsageError, talk
from gateway.cli.ownership import hand_over
from gateway.cli.serve_for_job import request_line
from gateway.host import child_command, child_environment
from gateway.housekeeping.merging import MEMORY
from gateway.settings import Settings
from ledger.errors import StoreError, StoreLocked
from pipeline.links import UnixLink, Unreachable

MODULE: Final = "gateway.cli.serve_for_job"
"""Its docstring has the lines that go to it and come from it."""
SOCKET: Final = "internal.sock"
LOOK_S: Final = 5.0
END_S: Final = 60.0
"""It answers what is under way and writes its image."""
NOBODY: Final = (FileNotFoundError, ConnectionRefusedError)


@contextmanager
def reached(settings: Settings, place: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """How a job reaches the gateway: by `place`, as `PeerPlace` has it, if something listens there. Otherwise
    a gateway is started for as long as the job takes; one sentence says why if another may own the ledger.

    Errors: UsageError, ClientError, StoreError.
    """
    if place is not None and _is_listening(place):
        yield dict(place)
        return
    if settings.storage.metadata.endswith(MEMORY):
        raise UsageError("this ledger is in the memory of its gateway: no job can reach it")
    check_there(settings)
    try:
        with tempfile.TemporaryDirectory(prefix="dragoman-") as directory:
            path = Path(directory, SOCKET)
            with _Started(settings, path, _hint(place)):
                yield {"path": str(path), "once": True}
    finally:
        hand_over(settings.storage)


def _is_listening(place: Mapping[str, Any]) -> bool:
    """False if surely nothing listens there. Whatever else is wrong the job says."""
    try:
        if "path" in place:
            UnixLink(Path(place["path"])).connect(LOOK_S).close()
        else:
            socket.create_connection((place["host"], place["port"]), LOOK_S).close()
    except Unreachable as error:
        return not isinstance(error.__cause__, NOBODY)
    except NOBODY:
        return False
    except OSError:
        return True
    return True


def _hint(place: Mapping[str, Any] | None) -> str:
    """What helps if a gateway runs after all."""
    if place is None:
        return (
            "a gateway that runs is reached by internal.socket or internal.listen: name one, for it and here"
        )
    where = place["path"] if "path" in place else f"{place['host']}:{place['port']}"
    return f"a gateway that runs is reached at {where}, and nothing listens there"


class _Started:
    """A child process with the gateway."""

    def __init__(self, settings: Settings, path: Path, hint: str) -> None:
        self._settings = settings
        self._path = path
        self._hint = hint
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        try:
            self._process = subprocess.Popen(
                child_command(["-m", MODULE]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(),
            )
        except OSError as error:
            raise ClientError(
                f"a gateway for the job cannot be started: {error.strerror or error}"
            ) from error
        try:
            self._begin(self._process)
        except BaseException:
            self._end()
            raise

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        failure = self._end()
        # A job fails when its gateway does, and knows only that it is gone.
        if failure is not None and (error is None or isinstance(error, ClientError)):
            raise failure from error

    def _begin(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(request_line(self._settings, str(self._path)))
            process.stdin.flush()
        for line in process.stdout:
            said = _said(line)
            if "note" in said:
                talk(str(said["note"]))
            if "ready" in said:
                return
            if "error" in said:
                raise self._failure(*said["error"])
        raise ClientError(f"the gateway that was started for the job ended with {process.wait()}")

    def _end(self) -> Exception | None:
        """End it in order. Why it had ended before, if it had."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for line in process.stdout:
            if "error" in (said := _said(line)):
                return self._failure(*said["error"])
        if process.returncode:
            return ClientError(f"the gateway that was started for the job ended with {process.returncode}")
        return None

    def _failure(self, sentence: str, code: int) -> Exception:
        match code:
            case Exit.USAGE:
                return UsageError(sentence)
            case Exit.IN_USE:
                return StoreLocked(f"{sentence}; {self._hint}")
            case Exit.STORE:
                return StoreError(sentence)
        return ClientError(sentence)


def _said(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict):
            return said
    return {}
