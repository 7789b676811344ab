"""A storm of random and spoilt frames: the process lives, its memory is bounded, clients are served."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from gateway.router import HANDLERS
from gateway.wire.apis import RANGES
from tests.differential.batches import Batch
from tests.differential.conversation import Conversation, encode
from tests.differential.exchange import Exchange, Frame, resolve
from tests.differential.scenarios.all import EXCHANGES
from tests.differential.scenarios.builders import read_back
from tests.differential.steps import Create, NewProducer, OpenSession, Send, response_of
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.raw import frame

FRAMES: Final = 5000
WARM_UP: Final = 1000
SEED: Final = 4301
AT_ONCE: Final = 16
PATIENCE_S: Final = 0.05
"""How long to wait for a response: a spoilt request may contain a long wait."""
MAX_GROWTH_BYTES: Final = 64 * 1024 * 1024


@pytest.fixture
def stormed(gateway_factory: GatewayFactory) -> Gateway:
    gateway = gateway_factory()
    gateway.start()
    return gateway


def test_invariant_08_after_5000_spoilt_frames_clients_are_served_and_memory_is_bounded(
    stormed: Gateway,
) -> None:
    conversation = Conversation(stormed, "storm", 1_700_000_000_000)
    Create(partitions=2).run(conversation)
    frames = list(spoilt_frames(conversation, FRAMES))
    asyncio.run(storm(stormed, frames[:WARM_UP]))
    before = resident_bytes(stormed.pid)
    outcomes = asyncio.run(storm(stormed, frames[WARM_UP:]))
    grown = resident_bytes(stormed.pid) - before
    assert stormed.is_running()
    assert grown < MAX_GROWTH_BYTES, f"{grown} bytes more than before"
    # Both ends of the matter were met: what is refused, and what is still a request.
    assert outcomes["closed"] > FRAMES / 10
    assert outcomes["answered"] > FRAMES / 10
    serves(stormed)


def serves(gateway: Gateway) -> None:
    """A healthy client creates a topic, writes and reads."""
    conversation = Conversation(gateway, "healthy", 1_700_000_000_000)
    Create().run(conversation)
    Send((Batch(3),)).run(conversation)
    (topic,) = response_of(conversation, read_back()).responses
    assert bytes(topic.partitions[0].records)[16:] == Batch(3).build(conversation)[16:]


async def storm(gateway: Gateway, frames: Sequence[bytes]) -> Counter[str]:
    """Send all, each on a connection of its own; what became of them."""
    waiting = iter(frames)

    async def work() -> list[str]:
        return [await throw(gateway, data) for data in waiting]

    outcomes = await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return Counter(outcome for part in outcomes for outcome in part)


async def throw(gateway: Gateway, data: bytes) -> str:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(data)
            return "answered" if await reader.read(4) else "closed"
    except TimeoutError:
        return "silent"
    except ConnectionError:
        return "closed"
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def spoilt_frames(conversation: Conversation, count: int) -> Iterator[bytes]:
    """The same ones each run."""
    generator = random.Random(SEED)
    good = list(good_frames(conversation))
    for _ in range(count):
        yield spoil(generator, generator.choice(good))


def spoil(generator: random.Random, data: bytes) -> bytes:
    """One of: bytes changed, a part cut out, a part doubled, another length, another key, noise."""
    body = bytearray(data[4:])
    at = generator.randrange(len(body))
    match generator.randrange(7):
        case 0 | 1:
            for _ in range(generator.randint(1, 4)):
                body[generator.randrange(len(body))] = generator.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1)
                )
        case 2:
            del body[at : at + generator.randint(1, 40)]
        case 3:
            body[at:at] = body[at : at + generator.randint(1, 40)]
        case 4:
            return generator.choice((0, 3, len(body) + 5, 2**31 - 1, 2**32 - 1)).to_bytes(4, "big") + body
        case 5:
            body[:4] = generator.choice(list(RANGES)).to_bytes(2, "big") + generator.randrange(20).to_bytes(
                2, "big"
            )
        case 6:
            body = bytearray(generator.randbytes(generator.randint(8, 400)))
    return frame(bytes(body))


def good_frames(conversation: Conversation) -> Iterator[bytes]:
    """The requests of all exchanges that are small enough to be sent by the thousand."""
    for exchange in EXCHANGES:
        if not isinstance(exchange.request, Frame) and is_harmless(exchange):
            data = encode(exchange.call, resolve(exchange.request, conversation), 7)
            if len(data) < 10_000:
                yield data


def is_harmless(exchange: Exchange) -> bool:
    """Whether it needs no id that a step would have brought about."""
    makes_ids = any(isinstance(step, NewProducer | OpenSession) for step in exchange.before)
    return exchange.api in HANDLERS and not makes_ids and not exchange.name.startswith("fetch sessions:")


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no resident size")
