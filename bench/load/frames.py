"""Sends prepared Produce requests over one connection: exact batch sizes, exact partitions a request.

Request r holds one batch for each of `per_request` partitions, going round over all `partitions`.
Spec: host, port, topic, partitions, per_request, requests, record_bytes, batch_records, in_flight.
"""

import struct
import time
from collections.abc import Iterator
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from bench.load.phases import run_phases
from gateway.wire.apis import ApiKey
from gateway.wire.messages import codec
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.raw import RawConnection, raw_connection, request

VERSION = 8
CORRELATION = struct.Struct(">i")
ANSWER_TIMEOUT_S = 60.0


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    batch = record_batch(spec["batch_records"], spec["record_bytes"])
    partitions, per_request = spec["partitions"], spec["per_request"]
    starts = range(0, partitions, per_request)
    frames = [
        produce_frame(spec["topic"], range(start, min(start + per_request, partitions)), batch)
        for start in starts
    ]
    batches = 0
    with raw_connection(spec["host"], spec["port"], ANSWER_TIMEOUT_S) as connection:
        # Every partition is opened and written once before it counts.
        for frame in frames:
            connection.send(frame)
            check_answer(connection)
        yield {}
        started = time.monotonic()
        open_requests = 0
        for number in range(spec["requests"]):
            if open_requests == spec["in_flight"]:
                batches += check_answer(connection)
                open_requests -= 1
            connection.send(frames[number % len(frames)])
            open_requests += 1
        for _ in range(open_requests):
            batches += check_answer(connection)
        took_s = time.monotonic() - started
        records = (batches + partitions) * spec["batch_records"]
        yield {"batches": batches, "batch_bytes": len(batch), "topic_records": records, "took_s": took_s}


def record_batch(records: int, record_bytes: int) -> bytes:
    """A batch of magic 2 as a producer without idempotence sends it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    now_ms = time.time_ns() // 1_000_000
    for offset in range(records):
        builder.append(offset, now_ms, None, bytes(record_bytes), [])
    return bytes(builder.build())


def produce_frame(topic: str, partitions: range, batch: bytes) -> bytes:
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    message = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    return request(ApiKey.PRODUCE, VERSION, codec.encode_request(ApiKey.PRODUCE, VERSION, message))


def check_answer(connection: RawConnection) -> int:
    """The number of batches that were stored. Errors: RuntimeError for any that was not."""
    body = connection.read_frame()
    if not isinstance(body, bytes):
        raise RuntimeError(body.value)
    response = codec.decode_response(ApiKey.PRODUCE, VERSION, memoryview(body)[CORRELATION.size :])
    results = [result for topic in response.responses for result in topic.partition_responses]
    refused = {result.error_code for result in results if result.error_code}
    if refused:
        raise RuntimeError(f"batches were refused: error codes {sorted(refused)}")
    return len(results)


if __name__ == "__main__":
    run_phases(phases)
