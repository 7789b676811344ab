"""A small file system of its own in a directory: to be filled up, or to be made read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
TIMEOUT_S = 10


class CannotMount(Exception):
    """This process may not mount a tmpfs; the message is the reason to skip."""


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._ballast.open("ab", buffering=0) as file:
            while left := self.free_bytes:
                file.write(bytes(left))

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)

    def make_read_only(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.path))

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"


@contextmanager
def small_disk(directory: Path, size_bytes: int = 24 * MIB) -> Iterator[SmallDisk]:
    """Errors: CannotMount."""
    directory.mkdir(parents=True)
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "dragoman-test", str(directory))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise CannotMount(f"a tmpfs cannot be mounted here: {reason}".strip()) from error
    try:
        yield SmallDisk(directory)
    finally:
        # Lazily: a process that still has a file open must not keep the test from ending.
        _run("umount", "-l", str(directory))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
