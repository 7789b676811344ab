"""Two gateways on one store, again and again: the newer takes over, the older says so and ends (exit code 5).

Clients connect to one address, behind which a proxy leads to the gateway that was started last.
"""

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.faults.far_clients import Clients, clients_at, until_all_go_on
from tests.faults.takeovers import replace, two_gateways
from tests.support.far_stores import BUCKET_ALONE, FAR_ROWS, FarGateway, FarPlace, far_place
from tests.support.gateway import Gateway
from tests.support.tcp_proxy import HOST, Link

TAKEOVERS = 3 if os.environ.get("DRAGOMAN_TEST_FULL") == "1" else 2
FULL_TAKEOVERS = 50
PROGRESS_S: Final = 60.0
GAP_S: Final = 3.0
MARGIN: Final = 5.0
"""A busy machine of the suite takes this much longer."""


class Front(Gateway):
    """What clients see of the gateways."""

    def __init__(self, directory: Path, link: Link) -> None:
        super().__init__(directory)
        self._link = link

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        return self._link.port

    @property
    def bootstrap(self) -> str:
        return self._link.endpoint


def longest_gap_s(clients: Clients, since_ns: int) -> float:
    """Without an acknowledged record, of all producers together."""
    times = sorted(ack.at_ns for ack in clients.acks if ack.at_ns >= since_ns)
    return max((later - at for at, later in itertools.pairwise([since_ns, *times])), default=0) / 1e9


async def take_over(link: Link, older: FarGateway, newer: FarGateway, clients: Clients) -> float:
    """The longest time without an ack."""
    begun_ns, logged = time.monotonic_ns(), older.log_path.stat().st_size
    await replace(link, older, newer)
    # All of it: what the loss leaves unfinished is logged with tracebacks, after the sentence.
    said = older.log_path.read_bytes()[logged:].decode(errors="replace").splitlines()
    (sentence,) = [line for line in said if line.startswith("dragoman: this gateway does not own the shard")]
    node_id = newer.options[newer.options.index("--node-id") + 1]
    assert f"gateway {node_id} (" in sentence and link.endpoint in sentence
    await asyncio.to_thread(until_all_go_on, clients, PROGRESS_S)
    return longest_gap_s(clients, begun_ns)


async def take_over_again_and_again(place: FarPlace, directory: Path, takeovers: int) -> Sequence[float]:
    async with two_gateways(place, directory) as (link, gateways), AsyncExitStack() as stack:
        using = clients_at(Front(directory, link), pause_s=0.01)
        clients = await asyncio.to_thread(using.__enter__)
        stack.push_async_callback(asyncio.to_thread, using.__exit__, None, None, None)
        await asyncio.to_thread(until_all_go_on, clients, PROGRESS_S)
        gaps = []
        for number in range(takeovers):
            older, newer = gateways[number % 2], gateways[1 - number % 2]
            gaps.append(await take_over(link, older, newer, clients))
        await asyncio.to_thread(clients.stop)
        assert await asyncio.to_thread(clients.problems) == []
        print(  # noqa: T201
            f"{place.row}: {takeovers} take-overs: {clients.summary()}; without an ack "
            f"{statistics.median(gaps):.2f} s in the median, {max(gaps):.2f} s at most"
        )
        return gaps


@pytest.mark.timeout(240)
@pytest.mark.parametrize("row", [BUCKET_ALONE])
async def test_nothing_is_lost_or_stored_twice_when_a_gateway_is_replaced(
    row: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    gaps = await take_over_again_and_again(far_place(request, row), tmp_path, TAKEOVERS)
    assert statistics.median(gaps) < MARGIN * GAP_S


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", FAR_ROWS)
async def test_nothing_is_lost_or_stored_twice_in_fifty_takeovers(
    row: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    gaps = await take_over_again_and_again(far_place(request, row), tmp_path, FULL_TAKEOVERS)
    assert statistics.median(gaps) < MARGIN * GAP_S
