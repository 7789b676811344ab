"""A gateway puts its memory into huge pages by itself, unless the operator has settings of the allocator."""

import sys
import time

import pytest

from gateway.cli.process import CALM_S
from tests.support.gateway import GatewayFactory

WAIT_S = 60.0
EVENT = '"event": "process.huge_pages"'


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")
@pytest.mark.parametrize(("env", "is_done"), [({}, True), ({"MALLOC_ARENA_MAX": "2"}, False)])
def test_memory_is_in_huge_pages_some_seconds_after_the_start(
    gateway_factory: GatewayFactory, env: dict[str, str], is_done: bool
) -> None:
    gateway = gateway_factory(["--set", "log.level=debug"], env=env)
    gateway.start()
    deadline = time.monotonic() + (WAIT_S if is_done else CALM_S + 5.0)
    while EVENT not in gateway.log_path.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (EVENT in gateway.log_path.read_text()) == is_done
