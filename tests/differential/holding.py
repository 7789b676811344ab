"""Holds one exchange with one endpoint."""

from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.join_group import JoinGroupResponse
from tests.differential.conversation import GIVEN, JOINED, WAITED_S, Answered, Conversation, Endpoint
from tests.differential.exchange import Call, Exchange
from tests.differential.group_steps import MEMBER_ID_REQUIRED
from tests.differential.normalise import plain
from tests.differential.steps import Create


def hold(endpoint: Endpoint, exchange: Exchange, prefix: str, started_ms: int) -> list[dict[str, Any]]:
    """The responses to its request and to each request after it, as plain values.

    Topic names begin with `prefix`. Errors: AssertionError for a step that failed, a response that is no
    message, or silence.
    """
    conversation = Conversation(endpoint, prefix, started_ms, unpacks=exchange.is_unpacked)
    with conversation.waiting:
        with conversation.connected():
            for step in exchange.before:
                step.run(conversation)
        responses = [_answer(conversation, call) for call in (exchange.call, *exchange.after)]
    found = [plain(response, conversation) for response in responses]
    if exchange.is_timed and isinstance(responses[0], Answered):
        found[0]["waited"] = responses[0].took_s >= WAITED_S
    return found


def _answer(conversation: Conversation, call: Call) -> Any:
    if call.is_fenced:
        # A broker applies topic changes in order: the leader of this topic has applied those before.
        Create(f"fence{len(conversation.topic_ids)}").run(conversation)
    response = conversation.ask(call)
    if isinstance(response, Answered):
        if call.api is ApiKey.JOIN_GROUP:
            _remember(conversation, response.message)
        elif call.api in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
            _remember_producer(conversation, response.message.producer_id)
    return response


def _remember(conversation: Conversation, joined: JoinGroupResponse) -> None:
    """The id that a JoinGroup gave; a refused one only repeats what it was sent."""
    known = conversation.member_ids
    if joined.error_code in (0, MEMBER_ID_REQUIRED) and joined.member_id not in known.values():
        known[JOINED] = joined.member_id


def _remember_producer(conversation: Conversation, producer_id: int) -> None:
    """An id that the endpoint gave and that no step requested: GIVEN, then `GIVEN 2`."""
    known = conversation.producer_ids
    if producer_id >= 0 and producer_id not in known.values():
        times = sum(alias.startswith(GIVEN) for alias in known)
        known[f"{GIVEN} {times + 1}" if times else GIVEN] = producer_id
