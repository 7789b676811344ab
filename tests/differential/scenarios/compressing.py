"""compression.type: what codecs are sent in and kept in, and what size counts. Read back decompressed."""

from collections.abc import Iterator
from typing import Any, Final

from gateway.wire.apis import ApiKey
from ledger.batch.header import DELETE_HORIZON_BIT, Codec
from ledger.batch.records import Record
from tests.differential.batches import HOUR_MS, Batch, Batches, max_timestamp
from tests.differential.exchange import Call, Exchange, ProducerIdOf, Step
from tests.differential.scenarios.builders import end_of, fetch, list_offsets, produce, read_back
from tests.differential.steps import Create, NewProducer, Send

KEY: Final = ApiKey.PRODUCE
KEPT: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMES: Final = ("CreateTime", "LogAppendTime")
VERSION: Final = 9
NO_ZSTD: Final = 3
"""Of Produce: zstd is known from 7 on, of Fetch from 10 on."""
FIRST_ZSTD_FETCH: Final = 10
LARGE: Final = b"x" * 20_000
SMALL_TOPIC_BYTES: Final = "100000"


def _exchange(
    name: str, request: Any, kept: str, *, version: int = VERSION, before: tuple[Step, ...] = (), **more: str
) -> Exchange:
    """Into a fresh topic whose codec is `kept`; configs with `_` for the dot."""
    configs = {"compression.type": kept} | {key.replace("_", "."): value for key, value in more.items()}
    return Exchange(
        f"compression: {name}",
        KEY,
        version,
        request,
        [Create(configs=configs), *before],
        [read_back(), end_of()],
        is_unpacked=True,
    )


def _each_codec() -> Iterator[Exchange]:
    for kept in KEPT:
        for codec in Codec:
            sent = codec.name.lower()
            for times in TIMES:
                name = f"{sent} kept as {kept}, {times}"
                request = produce(Batch(20, b"value" * 20, codec=codec))
                yield _exchange(name, request, kept, message_timestamp_type=times)


def _repeats() -> Iterator[Exchange]:
    """An idempotent producer repeats what was packed, and continues with the next sequence."""
    for kept in KEPT:
        for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
            one, two = (
                Batch(3, codec=codec, producer=ProducerIdOf("p"), epoch=0, sequence=sequence)
                for sequence in (0, 3)
            )
            name = f"{codec.name.lower()} kept as {kept}"
            taken = NewProducer("p"), Send((one,))
            yield _exchange(f"a repeat of {name}", produce(one), kept, before=taken)
            yield _exchange(f"the next of {name}", produce(two), kept, before=taken)


def _sizes() -> Iterator[Exchange]:
    """200 KB of records that pack to much less, where a batch may have 100 KB."""
    for codec, kept in (
        (Codec.NONE, "gzip"),
        (Codec.NONE, "producer"),
        (Codec.GZIP, "uncompressed"),
        (Codec.GZIP, "producer"),
        (Codec.GZIP, "gzip"),
        (Codec.ZSTD, "snappy"),
        (Codec.LZ4, "uncompressed"),
        (Codec.SNAPPY, "zstd"),
    ):
        yield _exchange(
            f"200 KB in {codec.name.lower()} kept as {kept} where 100 KB are allowed",
            produce(Batch(10, LARGE, codec=codec)),
            kept,
            max_message_bytes=SMALL_TOPIC_BYTES,
        )


def _others() -> Iterator[Exchange]:
    plain = Batch(2), Batch(3, codec=Codec.LZ4, later_ms=10), Batch(1, codec=Codec.ZSTD, later_ms=20)
    for kept in KEPT:
        yield _exchange(f"codecs by turns kept as {kept}", produce(Batch()), kept, before=(Send(plain[:2]),))
        late = Batch(records=[Record(0, 0, b"k", b"v"), Record(1, 5 * HOUR_MS, b"k", b"v")])
        yield _exchange(f"a record of the future kept as {kept}", produce(late), kept)
        back = Batch(records=[Record(0, 0, b"a", b"b"), Record(1, -500, b"c", None)], codec=Codec.GZIP)
        yield _exchange(f"times that go back kept as {kept}", produce(back), kept)
        yield _exchange(f"an attribute that nothing uses kept as {kept}", _odd(Codec.GZIP), kept)
        yield _exchange(f"an attribute that nothing uses, unpacked, kept as {kept}", _odd(Codec.NONE), kept)
        yield _exchange(f"a first record after the base timestamp kept as {kept}", _late_first(), kept)
        yield _exchange(f"a null key kept as {kept}", _keyless(), kept, cleanup_policy="compact")
        yield _exchange(f"no time kept as {kept}", produce(Batch(timestamp_ms=-1, step_ms=0)), kept)
        yield _exchange(f"no key, value or header kept as {kept}", produce(Batch(records=[Record()])), kept)
        yield _exchange(f"bytes of half a batch after it kept as {kept}", _half_behind(), kept)
        yield _exchange(f"acks 0 kept as {kept}", produce(Batch(2), acks=0), kept)
        yield _exchange(f"zstd in version {NO_ZSTD} kept as {kept}", _zstd(), kept, version=NO_ZSTD)
        yield _exchange(f"version {NO_ZSTD} kept as {kept}", produce(Batch(2)), kept, version=NO_ZSTD)
        yield _read_by_old_versions(kept)
        yield Exchange(
            f"compression: found by time, kept as {kept}",
            ApiKey.LIST_OFFSETS,
            4,
            list_offsets(0),
            [Create(configs={"compression.type": kept}), Send((Batch(5, codec=Codec.GZIP),))],
            [Call(ApiKey.LIST_OFFSETS, 7, list_offsets(-3))],
        )


def _lies() -> Iterator[Exchange]:
    """The codec in the header of a batch that the topic has to open."""
    for kept in ("uncompressed", "snappy", "lz4", "zstd"):
        lie = produce(Batch(2, codec=Codec.GZIP, patches=[max_timestamp(1_600_000_000_000)]))
        yield _exchange(f"a max timestamp that no record has kept as {kept}", lie, kept)
    for codec in (Codec.NONE, Codec.GZIP):
        name = f"a max timestamp that no record has, {codec.name.lower()} in a compacted topic"
        lie = produce(Batch(2, codec=codec, patches=[max_timestamp(1_600_000_000_000)]))
        yield _exchange(name, lie, "producer", cleanup_policy="compact")


def _odd(codec: Codec) -> Any:
    return produce(Batch(3, codec=codec, flags=DELETE_HORIZON_BIT))


def _late_first() -> Any:
    late = [Record(0, 500, b"k", b"v"), Record(1, -100, b"k", None), Record(2, 9000, b"k", b"w")]
    return produce(Batch(records=late, codec=Codec.GZIP))


def _read_by_old_versions(kept: str) -> Exchange:
    return Exchange(
        f"compression: fetched in version 9, kept as {kept}",
        ApiKey.FETCH,
        FIRST_ZSTD_FETCH - 1,
        fetch(0),
        [Create(configs={"compression.type": kept}), Send((Batch(5),))],
        is_unpacked=True,
    )


def _keyless() -> Any:
    return produce(Batch(records=[Record(0, 0, b"k", b"v"), Record(1, 0, None, b"v")], codec=Codec.SNAPPY))


def _half_behind() -> Any:
    return produce(Batches([Batch(2, codec=Codec.LZ4), Batch(3, cut=9)]))


def _zstd() -> Any:
    return produce(Batch(2, codec=Codec.ZSTD))


EXCHANGES: list[Exchange] = [*_each_codec(), *_repeats(), *_sizes(), *_others(), *_lies()]
