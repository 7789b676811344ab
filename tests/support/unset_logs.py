"""Pytest plugin: a command that a test runs in its own process leaves the log of later tests as it was.

A process of Dragoman sets its log up once, and each logger keeps what it finds when it is first used: the
level, and the file that was stderr then, which pytest and typer close with the test.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def unset_logs() -> Iterator[None]:
    configure = structlog.configure

    def configure_for_now(**given: Any) -> None:
        configure(**{**given, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", configure_for_now)
        yield
    if structlog.is_configured():
        structlog.reset_defaults()
