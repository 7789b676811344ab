"""Random sequences of requests: Apache Kafka and the gateway give the same responses, request by request."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from gateway.wire.apis import ApiKey
from tests.differential.comparing import differences
from tests.differential.conftest import Comparison
from tests.differential.conversation import Answered, Conversation, Endpoint
from tests.differential.exchange import Call
from tests.differential.normalise import plain
from tests.differential.random_calls import RandomCalls, RandomSessions
from tests.differential.steps import Create

OPERATIONS: Final = 60
SEEDS: Final = [
    *range(4),
    *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 40)),
]


@dataclass(frozen=True, slots=True)
class Played:
    """Each call of a sequence, and the response to it."""

    calls: Sequence[Call]
    responses: Sequence[dict[str, Any]]


def play(endpoint: Endpoint, sequence: RandomCalls, prefix: str, started_ms: int) -> Played:
    conversation = Conversation(endpoint, prefix, started_ms, unpacks=sequence.packs)
    calls, responses = [], []
    with conversation.connected():
        for step in sequence.before():
            step.run(conversation)
        for number, one in enumerate(sequence):
            if not isinstance(one, Call):
                one.run(conversation)
                continue
            calls.append(one)
            response = conversation.ask(one)
            if one.api is ApiKey.FETCH and isinstance(response, Answered) and response.message.session_id:
                conversation.session = response.message.session_id
            responses.append(plain(response, conversation))
            if one.api is ApiKey.INCREMENTAL_ALTER_CONFIGS:
                # A broker applies changes in order: the leader of this topic has applied the configs.
                Create(f"fence{number}").run(conversation)
    return Played(calls, responses)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [RandomCalls, RandomSessions], ids=lambda kind: kind.__name__)
def test_a_random_sequence_gets_the_same_responses(
    kind: type[RandomCalls], seed: int, comparison: Comparison
) -> None:
    compare_sequences(kind, seed, comparison)


def compare_sequences(kind: type[RandomCalls], seed: int, comparison: Comparison) -> None:
    prefix = f"{kind.__name__}{comparison.started_ms % 10**8}-{seed}"
    with ThreadPoolExecutor(2) as pool:
        playing = [
            pool.submit(play, endpoint, kind(seed, OPERATIONS), prefix, comparison.started_ms)
            for endpoint in (comparison.kafka, comparison.gateway)
        ]
        kafka, ours = (one.result() for one in playing)
    assert kafka.calls == ours.calls
    assert len(ours.responses) > OPERATIONS / 2
    apis = [call.api for call in kafka.calls]
    found = list(differences(f"random: seed {seed}", apis, kafka.responses, ours.responses))
    refused = [one for one in found if not any(entry.covers(one) for entry in comparison.allowed)]
    assert not refused, "\n".join(_told(one.place, str(one), kafka.calls) for one in refused[:5])


def _told(place: str, difference: str, calls: Sequence[Call]) -> str:
    number = int(place.split()[1])
    return f"{difference}\n  asked: {calls[number]}"
