"""Rates, precedence of quotas, and checks of their requests: the pure parts of client quotas."""

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.quotas.alter import FETCH, MUTATION, PRODUCE, REQUEST, QuotaEdit, check_edits, entity_of
from gateway.quotas.describe import Component, MatchType, find_quotas
from gateway.quotas.lookup import Limit, find_limit, parse_address
from gateway.quotas.meter import MAX_THROTTLE_MS, RateMeter
from gateway.telemetry.handler_time import HandlerTime
from ledger.requests import Refused
from ledger.settings.state import QuotaEntity

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
KAFKA_RATES: list[dict[str, Any]] = json.loads((FIXTURES / "kafka_rates.json").read_text())
"""Results of Kafka 4.3.1: events of a Sensor with a Rate, each [ms since the one before, amount recorded,
throttle time by QuotaUtils, whether the amount was then taken back]."""
PRECEDENCE: list[tuple[Mapping[str, str | None], tuple[str, str]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", "")),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", "")),
    ({"client-id": "c"}, ("", "c")),
    ({"client-id": None}, ("", "c")),
]


def entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    return entity_of(list(parts.items()))


@pytest.mark.parametrize("case", KAFKA_RATES, ids=lambda case: f"{case['windows']} of {case['window_ms']} ms")
def test_rates_and_throttle_times_are_those_of_kafka(case: dict[str, Any]) -> None:
    meter = RateMeter(case["windows"], case["window_ms"])
    now_ms, throttled = 1_000_000, 0
    for gap_ms, amount, throttle_ms, is_taken_back in case["events"]:
        now_ms += gap_ms
        meter.record(amount, now_ms)
        assert meter.throttle_ms(case["limit"], now_ms) == throttle_ms
        throttled += throttle_ms > 0
        if is_taken_back:
            meter.record(-amount, now_ms)
    assert throttled > 20


def test_after_its_throttle_time_a_client_is_within_its_quota() -> None:
    meter = RateMeter(11, 1000)
    meter.record(25_000_000, 0)
    wait_ms = meter.throttle_ms(1_000_000, 0)
    assert wait_ms == 15_000
    assert meter.rate(wait_ms - 10) == 0  # forgotten by then: it is older than all samples
    meter.record(10_000_000, wait_ms)
    assert meter.throttle_ms(1_000_000, wait_ms) == 0


def test_the_first_entity_with_a_quota_in_kafkas_order_counts() -> None:
    quotas = {entity(parts): float(at) for at, (parts, _) in enumerate(PRECEDENCE)}
    for at, (parts, (user, client_id)) in enumerate(PRECEDENCE):
        assert find_limit(quotas, "u", "c") == Limit(float(at), user, client_id)
        del quotas[entity(parts)]
    assert find_limit(quotas, "u", "c") is None


def test_quotas_of_other_clients_do_not_count() -> None:
    quotas = {
        entity({"user": "U"}): 1.0,
        entity({"client-id": "C"}): 1.0,
        entity({"user": "u", "client-id": "C"}): 1.0,
    }
    assert find_limit(quotas, "u", "c") is None
    assert find_limit({entity({"client-id": None}): 3.0}, "u", "") == Limit(3.0, "", "")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("::1", "0:0::0001"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("localhost", None),
        ("1.2.3", None),
    ],
)
def test_addresses_are_compared_by_value(text: str, same: str | None) -> None:
    assert parse_address(text) == (parse_address(same) if same is not None else None)


def verdicts(*edits: tuple[Mapping[str, str | None], Sequence[tuple[str, float | None]]]) -> list[str]:
    checked = check_edits([QuotaEdit(entity(parts), ops) for parts, ops in edits])
    return [edit.refused.error if edit.refused is not None else "NONE" for edit in checked]


C = {"client-id": "c"}


@pytest.mark.parametrize(
    ("parts", "ops", "verdict"),
    [
        (C, [(PRODUCE, 1.0), (FETCH, None), (REQUEST, 0.5), ("nonsense", None)], "NONE"),
        (C, [], "NONE"),
        (C, [(PRODUCE, 2.0**63)], "NONE"),
        (C, [(PRODUCE, 1.0000005)], "NONE"),
        (C, [(PRODUCE, 1.5)], "INVALID_REQUEST"),
        (C, [(PRODUCE, 2.0**64)], "INVALID_REQUEST"),
        (C, [(PRODUCE, 0.0)], "INVALID_REQUEST"),
        (C, [(REQUEST, -1.0)], "INVALID_REQUEST"),
        (C, [(PRODUCE, math.nan)], "INVALID_REQUEST"),
        (C, [(REQUEST, math.nan)], "INVALID_REQUEST"),
        (C, [(REQUEST, math.inf)], "INVALID_REQUEST"),
        (C, [(MUTATION, math.nan)], "INVALID_REQUEST"),
        (C, [(MUTATION, math.inf)], "INVALID_REQUEST"),
        (C, [("nonsense", 1.0)], "INVALID_REQUEST"),
        (C, [("connection_creation_rate", 1.0)], "INVALID_REQUEST"),
        (C, [(PRODUCE, 1.0), (PRODUCE, 2.0)], "INVALID_REQUEST"),
        ({"ip": "10.0.0.1"}, [("connection_creation_rate", 7.0)], "NONE"),
        ({"ip": None}, [("connection_creation_rate", 7.0)], "NONE"),
        ({"ip": "10.0.0.1"}, [("connection_creation_rate", 7.5)], "INVALID_REQUEST"),
        ({"ip": "10.0.0.1"}, [("connection_creation_rate", math.nan)], "INVALID_REQUEST"),
        ({"ip": "10.0.0.1"}, [("connection_creation_rate", 2.0**31)], "INVALID_REQUEST"),
        ({"ip": "10.0.0.1"}, [(PRODUCE, 7.0)], "INVALID_REQUEST"),
        ({"ip": "no address"}, [("connection_creation_rate", 7.0)], "INVALID_REQUEST"),
        ({"ip": "10.0.0.1", "user": "u"}, [], "INVALID_REQUEST"),
        ({}, [(PRODUCE, 1.0)], "INVALID_REQUEST"),
        ({"group": "g"}, [(PRODUCE, 1.0)], "INVALID_REQUEST"),
        ({"user": ""}, [(PRODUCE, 1.0)], "INVALID_REQUEST"),
        ({"user": "u" * 5_000}, [(PRODUCE, 1.0)], "INVALID_REQUEST"),
    ],
)
def test_quotas_are_checked_before_they_are_stored(
    parts: Mapping[str, str | None], ops: Sequence[tuple[str, float | None]], verdict: str
) -> None:
    assert verdicts((parts, ops)) == [verdict]


def test_one_wrong_entity_fails_no_other() -> None:
    good, bad = [(PRODUCE, 1.0)], [("nonsense", 1.0)]
    assert verdicts((C, good), ({"user": "u"}, bad), ({"user": None}, good)) == [
        "NONE",
        "INVALID_REQUEST",
        "NONE",
    ]


def test_of_an_entity_given_twice_the_first_change_is_made_and_it_is_refused() -> None:
    edits = [QuotaEdit(entity(C), [(PRODUCE, value)]) for value in (1.0, 2.0)]
    (checked,) = check_edits(edits)
    assert checked.refused is not None and checked.changes == {PRODUCE: 1.0}


QUOTAS: Mapping[QuotaEntity, Mapping[str, float]] = {
    entity(parts): {PRODUCE: float(at)}
    for at, parts in enumerate(
        [*(parts for parts, _ in PRECEDENCE), {"ip": "10.0.0.1"}, {"ip": None}, {"user": "other"}]
    )
}
ANY, DEFAULT, EXACT = MatchType.ANY, MatchType.DEFAULT, MatchType.EXACT


@pytest.mark.parametrize(
    ("requested", "strict", "found"),
    [
        ([], False, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ([], True, []),
        ([("user", EXACT, "u")], False, [0, 1, 2]),
        ([("user", EXACT, "u")], True, [2]),
        ([("user", DEFAULT, None)], False, [3, 4, 5]),
        ([("user", ANY, None)], True, [2, 5, 10]),
        ([("client-id", ANY, None)], False, [0, 1, 3, 4, 6, 7]),
        ([("client-id", ANY, None), ("user", DEFAULT, None)], False, [3, 4]),
        ([("client-id", EXACT, "c"), ("user", ANY, None)], True, [0, 3]),
        ([("ip", ANY, None)], False, [8, 9]),
        ([("ip", EXACT, "10.0.0.2")], False, []),
    ],
)
def test_quotas_are_found_by_type_name_and_default(
    requested: Sequence[tuple[str, int, str | None]], strict: bool, found: Sequence[int]
) -> None:
    components = [Component(*one) for one in requested]
    result = find_quotas(QUOTAS, components, strict)
    assert not isinstance(result, Refused)
    assert [values[PRODUCE] for _, values in result] == found


@pytest.mark.parametrize(
    ("requested", "error"),
    [
        ([("", ANY, None)], "INVALID_REQUEST"),
        ([("group", ANY, None)], "UNSUPPORTED_VERSION"),
        ([("user", ANY, None), ("user", EXACT, "u")], "INVALID_REQUEST"),
        ([("user", EXACT, None)], "INVALID_REQUEST"),
        ([("user", DEFAULT, "u")], "INVALID_REQUEST"),
        ([("user", ANY, "u")], "INVALID_REQUEST"),
        ([("user", 3, None)], "INVALID_REQUEST"),
        ([("ip", ANY, None), ("client-id", ANY, None)], "INVALID_REQUEST"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    requested: Sequence[tuple[str, int, str | None]], error: str
) -> None:
    result = find_quotas(QUOTAS, [Component(*one) for one in requested], False)
    assert isinstance(result, Refused) and result.error == error


async def busy_and_waiting() -> str:
    for _ in range(3):
        began = time.perf_counter()
        while time.perf_counter() - began < 0.01:
            pass
        await asyncio.sleep(0.05)
    return "done"


@pytest.mark.serial
async def test_handler_time_counts_the_loops_work_and_not_the_waits_of_a_request() -> None:
    watch = HandlerTime()
    assert await watch.timed(busy_and_waiting()) == "done"
    assert 0.03 <= watch.spent_s() < 0.12


async def test_a_timed_request_can_be_cancelled_and_can_fail() -> None:
    seen: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def run() -> None:
        await HandlerTime().timed(waiting())

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]

    async def failing() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await HandlerTime().timed(failing())


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-6])
def test_the_smallest_quota_throttles_for_the_longest_time(limit: float) -> None:
    meter = RateMeter(11, 1000)
    meter.record(1e6, 0)
    assert meter.throttle_ms(limit, 1) == MAX_THROTTLE_MS
