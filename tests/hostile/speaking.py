"""What attackers say, one exchange or many, and batches that no client library makes."""

import socket
import struct
from collections.abc import Sequence
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import seal
from ledger.batch.records import Record, build_batch
from tests.hostile.arena import Arena
from tests.support.messages import message, read
from tests.support.raw import Outcome, RawConnection

WAIT_S = 60.0
PRODUCE_VERSION = 7
PRODUCER_ID_AT = 43


def connect(arena: Arena, source: str = "", receive_bytes: int = 0) -> RawConnection:
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    if source:
        sock.bind((source, 0))
    sock.settimeout(WAIT_S)
    sock.connect((arena.gateway.host, arena.gateway.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return RawConnection(sock)


def exchange(arena: Arena, *frames: bytes) -> list[bytes | Outcome]:
    """Send the frames over one connection, one after the other, and read a response to each."""
    connection = connect(arena)
    try:
        connection.send(b"".join(frames))
        return [connection.read_frame() for _ in frames]
    finally:
        connection.sock.close()


def ask(arena: Arena, key: ApiKey, version: int, body: Any) -> Any:
    """One exchange; the response message. Errors: AssertionError where there is none."""
    (response,) = exchange(arena, message(key, version, body))
    assert isinstance(response, bytes), f"{key.name}: {response}"
    return read(key, version, response)


def produce(topic: str, partition: int, batch: bytes, acks: int = -1, timeout_ms: int = 30_000) -> bytes:
    """A framed Produce request."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, batch)])
    body = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    return message(ApiKey.PRODUCE, PRODUCE_VERSION, body)


def batches_of_producers(producer_ids: Sequence[int]) -> list[bytes]:
    """A batch of one record for each, the producer's first."""
    batch = bytearray(build_batch([Record(0, 0, None, b"x", ())]))
    struct.pack_into(">qhi", batch, PRODUCER_ID_AT, 0, 0, 0)
    made = []
    for producer_id in producer_ids:
        struct.pack_into(">q", batch, PRODUCER_ID_AT, producer_id)
        seal(batch)
        made.append(bytes(batch))
    return made
