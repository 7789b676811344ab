"""What commands say: data on stdout, talk on stderr, one sentence and an exit code for an error."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.config import ConfigError
from ledger.errors import StoreError, StoreLocked

WIDE = 200
"""Columns of a table that does not go to a terminal."""


class UsageError(Exception):
    """The arguments do not fit together; the message says what to write instead."""


def end_with(work: Callable[[], Exit]) -> NoReturn:
    """Run a command and leave with its exit code; an error is one sentence on stderr."""
    raise typer.Exit(_run(work))


def _run(work: Callable[[], Exit]) -> Exit:
    try:
        code = work()
        sys.stdout.flush()
        return code
    except (ConfigError, UsageError) as error:
        return _complain(error, Exit.USAGE)
    except ClientError as error:
        return _complain(error, Exit.FAILED)
    except StoreLocked as error:
        return _complain(error, Exit.IN_USE)
    except StoreError as error:
        return _complain(error, Exit.STORE)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Who reads our output has enough; what is still buffered must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _complain(error: Exception, code: Exit) -> Exit:
    typer.echo(f"dragoman: {error}", err=True)
    return code


def talk(text: str) -> None:
    """A line for people, on stderr."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """A value as one JSON document on stdout. Dataclasses become objects."""
    typer.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def print_line(value: Any) -> None:
    """A value as one line of JSON on stdout."""
    typer.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def print_text(text: str) -> None:
    """A line of data for people, on stdout."""
    typer.echo(text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns on stdout, as wide as they need to be when nobody looks."""
    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*[str(cell) for cell in row])
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE, markup=False)
    console.print(table)


def shown_time(unix_ms: int) -> str:
    """In UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ms / 1000))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return str(value)
