"""The messages of AdoptTopic and AdoptRuns as a job sends and reads them (cf. `pipeline/messages.py`)."""

from ledger.adoption.requests import Adopted, Adopting, AdoptRuns, AdoptTopic
from ledger.types import TopicId
from pipeline.messages import Failure, end_request, read_failure
from pipeline.primitives import Reader, Writer
from pipeline.swap_messages import runs_by_segment, write_runs


def adopt_topic_request(adopt: AdoptTopic, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.string(adopt.name)
    writer.uuid(adopt.topic_id)
    writer.int32(adopt.partitions)
    writer.string(adopt.place)
    writer.uuid(adopt.digest)
    writer.int8(adopt.step)
    return end_request(writer, timeout_ms)


def adopt_topic_response(reader: Reader) -> tuple[Failure, Adopting]:
    reader.int32()
    failure, topic_id = read_failure(reader), TopicId(reader.uuid())
    adopting = Adopting(topic_id, reader.boolean(), reader.boolean())
    reader.tags()
    return failure, adopting


def adopt_runs_request(adopt: AdoptRuns, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.uuid(adopt.topic_id)
    writer.int32(adopt.partition)
    writer.string(adopt.place)
    runs = runs_by_segment(len(adopt.segments), adopt.runs)
    writer.count(len(adopt.segments))
    for segment, inside in zip(adopt.segments, runs, strict=True):
        writer.string(segment.key)
        writer.int64(segment.object_bytes)
        writer.int64(segment.created_ms)
        write_runs(writer, inside)
        writer.tags()
    return end_request(writer, timeout_ms)


def adopt_runs_response(reader: Reader) -> tuple[Failure, Adopted]:
    reader.int32()
    failure, adopted = read_failure(reader), Adopted(reader.int64(), reader.boolean())
    reader.tags()
    return failure, adopted
