"""Events as lines on stderr: a fixed name, then fields. Never a payload, never a password."""

import asyncio
import logging
import sys
import time
from typing import Any, Final

import structlog

from gateway.config import Log

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

QUIET_S: Final = 5.0
MAX_TEXT: Final = 2000


def set_up_logs(log: Log) -> None:
    """Configure structlog for this process: readable text on a terminal, else JSON, unless told. What
    libraries log comes out in the same form."""
    as_text = log.format == "text" or (log.format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        # A traceback with the values of variables would show payloads and secrets.
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        if as_text
        else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not as_text:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[log.level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_FromLibraries()], level=max(_LEVELS[log.level], logging.WARNING))


def log_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """What nobody awaited or caught becomes one event, instead of lines of their own form."""
    logger = structlog.get_logger("loop")

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        logger.error("loop.error", message=context.get("message", ""), exc_info=error)

    loop.set_exception_handler(handle)


class QuietLog:
    """For what strangers can cause as often as they like: an event of one name and reason is written at
    most every few seconds, with how many were left out since."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self._last: dict[tuple[str, object], tuple[float, int]] = {}

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        key = (event, fields.get("reason"))
        now = time.monotonic()
        written_at, left_out = self._last.get(key, (0.0, 0))
        if now - written_at < QUIET_S:
            self._last[key] = (written_at, left_out + 1)
            return
        self._last[key] = (now, 0)
        if left_out:
            fields["left_out"] = left_out
        getattr(self._log, level)(event, **{name: value for name, value in fields.items() if value != ""})


class _FromLibraries(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        method = logger.error if record.levelno >= logging.ERROR else logger.warning
        message = record.getMessage()[:MAX_TEXT]
        method("library.message", library=record.name, message=message, exc_info=record.exc_info or None)
