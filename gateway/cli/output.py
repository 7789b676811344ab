"""Output of commands: data on stdout, messages on stderr; an error is one sentence and an exit code."""

import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, NoReturn

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.settings import ConfigError
from gateway.wire.errors import Unencodable
from ledger.errors import StoreError, StoreLocked

MAX_PADDING: Final = 300
"""Columns that cells are padded to, at most, where no terminal bounds a table. A longer cell is not cut."""
MAX_UNFOLDED: Final = 40
"""A cell of up to this many columns is not folded on a terminal, if all of them fit: a topic id has 36."""
GAP: Final = "  "
_BEYOND_ASCII: Final = re.compile("[\x7f-\U0010ffff]+")
"""Runs of characters that JSON has as they are, and of which some are not to be printed."""


class UsageError(Exception):
    """The arguments contradict each other. The message says what to write instead."""


class OutputError(Exception):
    """stdout cannot be written to."""


class Failures(ClientError):
    """Several things failed, each with a sentence of its own."""

    def __init__(self, failures: Sequence[ClientError]) -> None:
        super().__init__("; ".join(str(failure) for failure in failures))
        self.failures = failures


def end_with(work: Callable[[], Exit]) -> NoReturn:
    """Run a command and leave with its exit code; an error is one sentence on stderr."""
    raise typer.Exit(_run(work))


def _run(work: Callable[[], Exit]) -> Exit:
    try:
        code = work()
        with writing():
            if sys.stdout is not None:
                sys.stdout.flush()
        return code
    except (ConfigError, UsageError, Unencodable, UnicodeEncodeError) as error:
        # An argument that is too long (Unencodable), or no text (UnicodeEncodeError).
        return _complain(error, Exit.USAGE)
    except (ClientError, OutputError, StoreError) as error:
        return failed(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout has closed it.
        discard_stdout()
        return Exit.OK


def failed(error: ClientError | OutputError | StoreError) -> Exit:
    """Say why; the exit code that fits."""
    if isinstance(error, StoreError):
        return _complain(error, Exit.IN_USE if isinstance(error, StoreLocked) else Exit.STORE)
    if isinstance(error, OutputError):
        discard_stdout()
    for failure in error.failures if isinstance(error, Failures) else [error]:
        _complain(failure, Exit.FAILED)
    return Exit.FAILED


def raise_failures(failures: Sequence[ClientError]) -> None:
    """Raise them as one error, if there are any."""
    if failures:
        raise failures[0] if len(failures) == 1 else Failures(failures)


@contextmanager
def writing() -> Iterator[None]:
    """Around writes to stdout. A failure is raised as OutputError, but BrokenPipeError as itself."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


def discard_stdout() -> None:
    """Discard what is buffered and all later output: it must not fail again at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stdout_bytes() -> BinaryIO:
    """For binary data. OutputError if stdout is closed."""
    if sys.stdout is None:
        raise OutputError("cannot write to stdout: it is closed")
    return sys.stdout.buffer


def _complain(error: Exception, code: Exit) -> Exit:
    talk(f"dragoman: {error}")
    return code


def talk(text: str) -> None:
    """A line for people, on stderr. Errors are ignored: there is no place to report them."""
    with suppress(OSError):
        typer.echo(escaped(text), err=True)


def print_json(value: Any) -> None:
    """A value as one JSON document on stdout. Dataclasses become objects."""
    _print(json_text(value))


def json_text(value: Any) -> str:
    """The same document as text."""
    return printable_json(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def print_line(value: Any) -> None:
    """A value as one line of JSON on stdout."""
    _print(printable_json(json.dumps(value, default=_plain, ensure_ascii=False)))


def print_text(text: str = "") -> None:
    """A line of data for people, on stdout."""
    _print(escaped(text))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns on stdout: folded at the width of a terminal, otherwise as wide as the cells."""
    cells = [[escaped(str(cell)) for cell in row] for row in rows]
    if sys.stdout is not None and sys.stdout.isatty():
        with writing():
            _print_folded(head, cells)
        return
    lines = [list(head), *cells]
    widths = [min(MAX_PADDING, width) for width in _widths(lines)]
    for line in lines:
        _print(GAP.join(_padded(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_folded(head: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Fold long cells, and short ones only where that is not enough."""
    console = Console(highlight=False, markup=False)
    widths = _widths([head, *cells])
    short = sum(width for width in widths if width <= MAX_UNFOLDED)
    fits = short + len(head) * len(GAP) < console.width - MAX_UNFOLDED // 2
    table = Table(box=None, pad_edge=False)
    for name, width in zip(head, widths, strict=True):
        table.add_column(name, overflow="fold", no_wrap=fits and width <= MAX_UNFOLDED)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*lines, strict=True)]


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))


def _print(text: str) -> None:
    stdout_bytes()
    with writing():
        typer.echo(text)


def escaped(text: str) -> str:
    """Text with names that clients chose, made safe to print: it cannot move the cursor of a terminal, change
    its colours or begin a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_json(text: str) -> str:
    """JSON that says the same and is safe to print, like a text that is `escaped`: letters of any language
    stay, each character that is not printable is written as its code."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _BEYOND_ASCII.sub(_printable_run, text)


def _printable_run(run: re.Match[str]) -> str:
    if run[0].isprintable():
        return run[0]
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in run[0])


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def size_text(size_bytes: int) -> str:
    """`812 bytes`, `1.5 MB` of 10^6 bytes."""
    return counted(size_bytes, "byte") if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:.1f} MB"


def shown_time(unix_ms: int) -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ms / 1000))


def confirm(question: str, otherwise: str = "Nothing was deleted.") -> None:
    """On a terminal, ask the user. Returns after a yes, exits with 1 after a no, with 130 after Ctrl-C."""
    if sys.stdin is None or not sys.stdin.isatty():
        return
    sys.stderr.write(escaped(question) + " [y/N]: ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        talk("")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if answer.strip().lower() not in ("y", "yes"):
        if not answer:
            talk("")
        talk(otherwise)
        raise typer.Exit(Exit.FAILED)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return str(value)
