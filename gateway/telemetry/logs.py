"""Events as lines on stderr: a fixed name, then fields. Never a payload, never a password."""

import asyncio
import errno
import logging
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

import structlog

from gateway.config import unknown_variables
from gateway.settings import Log

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

QUIET_S: Final = 5.0
MAX_REMEMBERED: Final = 10_000
"""Keys that a QuietLog remembers."""
MAX_NAME: Final = 200
"""Characters that are written of a field that clients may have chosen."""
MAX_TEXT: Final = 2000
"""The same of our own sentences."""
OUR_TEXTS: Final = frozenset({"advice", "error", "exception", "message", "path", "remedy"})
FLOODABLE: Final = frozenset(
    {"connection", "fetch", "group", "library", "list_offsets", "offsets", "produce", "request"}
)
"""Families of events that clients can cause at any rate."""
FLOOD_BYTES: Final = 6000
"""Written of one such family at one level within FLOOD_S."""
FLOOD_S: Final = 5.0
_UNWRITABLE: Final = (OSError, ValueError, AttributeError)
"""No space or no reader; a closed file; no stderr at all."""
LINE_BYTES: Final = 120
"""Approximate size of a line without its texts."""
TRACEBACK_BYTES: Final = 2000
"""The same of a traceback."""


def set_up_logs(log: Log) -> None:
    """Configure structlog for this process: readable text on a terminal, else JSON, unless the
    settings say which. What libraries log comes out in the same form."""
    as_text = log.format == "text" or (log.format == "auto" and on_terminal())
    renderer: structlog.typing.Processor = (
        # A traceback with the values of variables would show payloads and secrets.
        structlog.dev.ConsoleRenderer(colors=on_terminal(), exception_formatter=structlog.dev.plain_traceback)
        if as_text
        else structlog.processors.JSONRenderer()
    )
    lines = _Lines()
    processors: list[structlog.typing.Processor] = [
        lines.mention_lost,
        harmless,
        Floods(),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not as_text:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[log.level]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_FromLibraries()], level=max(_LEVELS[log.level], logging.WARNING))


class _Lines:
    """Writes lines of the log to what is stderr at the time. One that cannot be written is lost, and fails
    nothing else: neither a full disk nor a reader that is gone is an error of the event. The first line that
    can be written again has the number of those that were lost."""

    def __init__(self) -> None:
        self._lost = 0
        self._is_torn = False
        """The last line was written in part."""
        self._lock = threading.Lock()

    def mention_lost(
        self, _: object, __: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """A processor."""
        if self._lost:
            event["lines_lost"] = self._lost
        return event

    def msg(self, message: str) -> None:
        """Write one line, past the buffer of stderr, which would write a lost line later after all."""
        with self._lock:
            line = f"\n{message}\n" if self._is_torn else f"{message}\n"
            try:
                # What was printed before comes before.
                sys.stderr.flush()
                self._write(sys.stderr, line)
            except _UNWRITABLE:
                self._lost += 1
            else:
                self._lost, self._is_torn = 0, False

    debug = info = warning = error = critical = msg

    def _write(self, stream: TextIO, line: str) -> None:
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(line)
            return
        raw = getattr(buffer, "raw", buffer)
        left = memoryview(line.encode(errors="backslashreplace"))
        while left:
            written = raw.write(left)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, "stderr takes nothing now")
            left = left[written:]
            self._is_torn = bool(left)


def on_terminal() -> bool:
    """Whether stderr is one; false without any."""
    stream = sys.stderr
    return stream is not None and not stream.closed and stream.isatty()


def warn_of_variables(environment: Mapping[str, str]) -> None:
    """Log variables that look like settings and are none, without values, which may be secrets."""
    for variable in unknown_variables(environment):
        structlog.get_logger().warning("settings.unknown_variable", variable=variable)


def harmless(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Names and reasons that clients choose, made safe to print: cut, and without characters that move the
    cursor of a terminal or begin a forged line."""
    for name, value in event.items():
        limit = MAX_TEXT if name in OUR_TEXTS else MAX_NAME
        if isinstance(value, str) and (len(value) > limit or not value.isprintable()):
            shown = "".join(
                char if char.isprintable() else char.encode("unicode_escape").decode()
                for char in value[:limit]
            )
            event[name] = shown if len(shown) <= limit >= len(value) else f"{shown[:limit]}…"
    return event


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


class Floods:
    """A processor that bounds what clients can write into the log: of each family of events in FLOODABLE, at
    each level, FLOOD_BYTES within FLOOD_S. Dropped events are counted, and the next event of the family has
    their number. The log of changes (`gateway.requests`) has a bound of its own."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], _Window] = {}

    def __call__(
        self, _: object, level: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        family = str(event.get("event", "")).partition(".")[0]
        if family not in FLOODABLE or "principal" in event:
            return event
        window = self._windows.setdefault((family, level), _Window())
        now = time.monotonic()
        if now >= window.ends_at:
            window.ends_at, window.left_bytes = now + FLOOD_S, FLOOD_BYTES
        if window.left_bytes <= 0:
            window.left_out += 1
            raise structlog.DropEvent
        texts = sum(len(ascii(value)) for value in event.values() if isinstance(value, str))
        window.left_bytes -= LINE_BYTES + texts + (TRACEBACK_BYTES if event.get("exc_info") else 0)
        if window.left_out:
            event["others_left_out"], window.left_out = window.left_out, 0
        return event


@dataclass(slots=True)
class _Window:
    ends_at: float = 0.0
    left_bytes: int = 0
    left_out: int = 0


def log_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log exceptions that were never awaited or caught as one event each."""
    logger = structlog.get_logger("loop")

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        logger.error("loop.error", message=context.get("message", ""), exc_info=error)

    loop.set_exception_handler(handle)


class QuietLog:
    """For events that clients can cause at any rate: an event of one name and the same values of `keyed_by`
    is written at most every `quiet_s`, with the number that were `left_out` since."""

    def __init__(self, quiet_s: float = QUIET_S, keyed_by: Sequence[str] = ("reason",)) -> None:
        self._log = structlog.get_logger()
        self._quiet_s = quiet_s
        self._keyed_by = keyed_by
        self._last: dict[tuple[object, ...], tuple[float, int]] = {}
        """When each was written last, and how many were left out since; the oldest first."""

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        key = (event, *(fields.get(name) for name in self._keyed_by))
        now = time.monotonic()
        written_at, left_out = self._last.get(key, (-math.inf, 0))
        if now - written_at < self._quiet_s:
            self._last[key] = (written_at, left_out + 1)
            return
        self._last.pop(key, None)
        self._last[key] = (now, 0)
        if len(self._last) > MAX_REMEMBERED:
            del self._last[next(iter(self._last))]
        if left_out:
            fields["left_out"] = left_out
        getattr(self._log, level)(event, **{name: value for name, value in fields.items() if value != ""})


class _FromLibraries(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        method = logger.error if record.levelno >= logging.ERROR else logger.warning
        message = record.getMessage()[:MAX_TEXT]
        method("library.message", library=record.name, message=message, exc_info=record.exc_info or None)
