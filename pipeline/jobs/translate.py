"""The job `translate`: says where the batch of one offset is, by the settled ledger that the gateway names.

`options` has the topic, partition and offset; `summary` is what `dragoman ledger translate` prints.
"""

import msgspec

from ledger.settled.lookup import NotTranslated, ObjectGone, SettledLookup, as_found, check_offset
from pipeline.engines.process import JobRequest, Say, opened
from pipeline.rounds import JobError


class TranslateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int


def run(request: JobRequest, say: Say) -> None:
    """Errors: JobError; PeerUnavailable, PeerRefused; StoreError, ValueError."""
    wanted = msgspec.convert(request.options, TranslateOptions)
    name = f"{wanted.topic}-{wanted.partition}"
    with opened(request) as (peer, store, _):
        topic = next((each for each in peer.topics() if each.name == wanted.topic), None)
        if topic is None or not 0 <= wanted.partition < topic.partitions:
            raise JobError(f"there is no partition {name}; dragoman topics list shows all")
        newest = peer.newest_settled(topic.topic_id, wanted.partition)
        try:
            files = check_offset(name, newest.files, newest.high_watermark, newest.log_start, wanted.offset)
            lookup = SettledLookup(topic.topic_id, wanted.partition, files, newest.high_watermark)
            reading = lookup.reading(wanted.offset)
            positions = next(reading)
            try:
                while True:
                    positions = reading.send(store.read(positions))
            except StopIteration as end:
                say("summary", as_found(end.value, files, name, wanted.offset))
        except (NotTranslated, ObjectGone) as error:
            raise JobError(str(error)) from error
