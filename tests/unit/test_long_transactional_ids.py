"""Transactional ids that are too long to be matched on the event loop are listed by a pattern as others."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from gateway.regex import InvalidPattern, Pattern, TooLong
from gateway.transactions import long_matches
from gateway.transactions.long_matches import LongMatches
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages import codec
from gateway.wire.messages.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ledger.transactions.requests import InitTransactionalId, ProducerEpoch
from ledger.transactions.state import Transaction, Transactions
from tests.support.caller import Caller
from tests.support.in_memory import in_memory_gateway

VERSION = 2
WAIT_S = 30.0
LARGE = "(?:app-[0-9]{1,40}|x{100})+"
LONG, LONG_APP = "y" * 30_000, "app-1" * 6_000


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    async with in_memory_gateway() as running:
        yield Caller(running)


async def opened(caller: Caller, *names: str) -> Sequence[Transaction]:
    shard = caller.services.shard
    for name in names:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        assert isinstance(await shard.ask(InitTransactionalId(name, 60_000), deadline), ProducerEpoch)
    return [shard.state.part(Transactions).by_id[name] for name in names]


async def listed(caller: Caller, pattern: str) -> ListTransactionsResponse:
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    body = codec.encode_request(ApiKey.LIST_TRANSACTIONS, VERSION, request)
    answer = await caller.answer(ApiKey.LIST_TRANSACTIONS, VERSION, body)
    response = codec.decode_response(ApiKey.LIST_TRANSACTIONS, VERSION, answer)
    assert isinstance(response, ListTransactionsResponse)
    return response


async def test_a_large_pattern_lists_others_next_to_a_long_id(caller: Caller) -> None:
    await opened(caller, "app-1", LONG, "other", LONG_APP)
    for name in (LONG, LONG_APP):
        with pytest.raises(TooLong):
            Pattern(LARGE).units(name)
    response = await listed(caller, LARGE)
    names = [each.transactional_id for each in response.transaction_states]
    assert (response.error_code, names) == (ErrorCode.NONE, ["app-1", LONG_APP])


async def test_a_request_whose_long_matches_take_too_long_is_refused(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(caller, "app-1", LONG)
    monkeypatch.setattr(long_matches, "MAX_REQUEST_S", 0.0)
    response = await listed(caller, LARGE)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not response.transaction_states


async def test_long_matches_are_done_one_at_a_time_also_after_a_request_is_cancelled(caller: Caller) -> None:
    known = await opened(caller, LONG, LONG_APP)
    at_once, most = 0, 0

    class Watched(Pattern):
        def matches(self, text: str) -> bool:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                return super().matches(text)
            finally:
                at_once -= 1

    matches = LongMatches()
    pattern = Watched(LARGE)
    gone = asyncio.create_task(matches.matching(pattern, known))
    await asyncio.sleep(0)
    requests = [asyncio.create_task(matches.matching(pattern, known)) for _ in range(5)]
    await asyncio.sleep(0)
    gone.cancel()
    assert await asyncio.gather(*requests) == [[known[1]]] * 5
    assert most == 1


async def test_an_error_of_a_match_gives_the_turn_to_the_next(caller: Caller) -> None:
    known = await opened(caller, LONG)

    class Failing(Pattern):
        def matches(self, text: str) -> bool:
            raise InvalidPattern("broken")

    matches = LongMatches()
    with pytest.raises(InvalidPattern):
        await matches.matching(Failing(LARGE), known)
    assert await asyncio.wait_for(matches.matching(Pattern(LARGE), known), WAIT_S) == []
