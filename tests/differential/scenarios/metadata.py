"""Metadata, 0-13: by name, by id, all, creating, and what is no topic."""

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.batches import i16, i32
from tests.differential.exchange import Appended, Body, Cut, Exchange, Patched
from tests.differential.scenarios.builders import metadata_of, metadata_of_ids
from tests.differential.steps import AskUntilFound, Create, Delete

KEY = ApiKey.METADATA
VERSIONS = (0, 1, 4, 8, 9, 10, 12, 13)
WITHOUT_CREATION = (4, 9, 13)
LONGEST = "x" * 249


def _named(name: str | None, topic_id: bytes = bytes(16)) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(topic_id, name)], False)


def _both(by_id: str, by_name: str) -> MetadataRequest:
    ids, names = metadata_of_ids(by_id).topics, metadata_of(by_name).topics
    return MetadataRequest([*(ids or ()), *(names or ())], False)


def _operations(cluster: bool, topic: bool) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name="{t}")], False, cluster, topic)


EXCHANGES = [
    *(Exchange(f"metadata: a topic, v{v}", KEY, v, metadata_of("t"), [Create()]) for v in VERSIONS),
    *(
        Exchange(f"metadata: seven partitions, v{v}", KEY, v, metadata_of("t"), [Create(partitions=7)])
        for v in (0, 7, 13)
    ),
    *(Exchange(f"metadata: unknown topic, v{v}", KEY, v, metadata_of("nowhere")) for v in WITHOUT_CREATION),
    *(
        Exchange(f"metadata: known and unknown topics, v{v}", KEY, v, metadata_of("a", "t", "z"), [Create()])
        for v in WITHOUT_CREATION
    ),
    *(
        Exchange(f"metadata: deleted topic, v{v}", KEY, v, metadata_of("t"), [Create(), Delete()])
        for v in (4, 13)
    ),
    *(
        Exchange(f"metadata: all topics, v{v}", KEY, v, MetadataRequest(None, False), [Create()])
        for v in (1, 8, 13)
    ),
    Exchange("metadata: all topics, v0", KEY, 0, MetadataRequest([]), [Create()]),
    *(
        Exchange(f"metadata: no topics, v{v}", KEY, v, MetadataRequest([], False), [Create()])
        for v in (1, 7, 13)
    ),
    *(Exchange(f"metadata: by id, v{v}", KEY, v, metadata_of_ids("t"), [Create()]) for v in (12, 13)),
    *(Exchange(f"metadata: unknown id, v{v}", KEY, v, metadata_of_ids("nowhere")) for v in (12, 13)),
    Exchange("metadata: id of a deleted topic", KEY, 12, metadata_of_ids("t"), [Create(), Delete()]),
    Exchange("metadata: ids known and unknown", KEY, 13, metadata_of_ids("t", "nowhere"), [Create()]),
    Exchange("metadata: by id in v10, which does not know it", KEY, 10, metadata_of_ids("nowhere")),
    Exchange("metadata: by id in v11, which does not know it", KEY, 11, metadata_of_ids("nowhere")),
    Exchange("metadata: a null name and no id, v12", KEY, 12, _named(None)),
    Exchange("metadata: a null name and no id, v10", KEY, 10, _named(None)),
    Exchange("metadata: name and id at once", KEY, 12, _named("{t}", b"neither-this-one"), [Create()]),
    Exchange("metadata: name and id at once, v10", KEY, 10, _named("{t}", b"neither-this-one"), [Create()]),
    Exchange("metadata: one by id, one by name", KEY, 12, _both("t", "u"), [Create(), Create("u")]),
    Exchange("metadata: one by id, an unknown one by name", KEY, 13, _both("t", "no"), [Create()]),
    Exchange(
        "metadata: operations of an invalid name",
        KEY,
        9,
        MetadataRequest([MetadataRequestTopic(name="a b")], False, False, True),
    ),
    Exchange(
        "metadata: operations of an unknown id",
        KEY,
        13,
        MetadataRequest([MetadataRequestTopic(b"nobody-has-this!", None)], False, False, True),
    ),
    Exchange("metadata: twice the same topic", KEY, 9, metadata_of("t", "t"), [Create()]),
    Exchange("metadata: an invalid name", KEY, 9, _named("not a topic/name")),
    Exchange(
        "metadata: an invalid name that might be created",
        KEY,
        9,
        MetadataRequest([MetadataRequestTopic(name="sp ace")], True),
    ),
    *(
        Exchange(
            f"metadata: {what}, v{v}",
            KEY,
            v,
            MetadataRequest([MetadataRequestTopic(name=name)], True),
            [Create("a_b_c")],
        )
        for what, name in (
            ("a name that collides might be created", "{a_b}.c"),
            ("the log of the metadata might be created", "__cluster_metadata"),
        )
        for v in (4, 9)
    ),
    Exchange("metadata: an empty name", KEY, 9, _named("")),
    Exchange("metadata: the name '.'", KEY, 4, _named(".")),
    Exchange("metadata: the name '..'", KEY, 13, _named("..")),
    Exchange("metadata: a name of 249 characters", KEY, 4, _named(LONGEST)),
    Exchange("metadata: a name of 250 characters", KEY, 4, _named(LONGEST + "x")),
    Exchange("metadata: a name that is not ASCII", KEY, 9, _named("tópico")),
    Exchange("metadata: operations of topics", KEY, 8, _operations(False, True), [Create()]),
    Exchange("metadata: operations of the cluster", KEY, 8, _operations(True, False), [Create()]),
    Exchange("metadata: all operations", KEY, 10, _operations(True, True), [Create()]),
    Exchange("metadata: operations of topics, v13", KEY, 13, _operations(False, True), [Create()]),
    Exchange(
        "metadata: operations of an unknown topic",
        KEY,
        13,
        MetadataRequest([MetadataRequestTopic(name="{no}")], False, False, True),
    ),
    *(
        Exchange(
            f"metadata: a topic created by a request, v{v}",
            KEY,
            v,
            metadata_of("t", create=True),
            [AskUntilFound("t", v)],
        )
        for v in (1, 5, 13)
    ),
    Exchange("metadata: a name that is not UTF-8", KEY, 1, Body(i32(1) + i16(3) + b"a\xff\xfe")),
    Exchange("metadata: more topics than the frame has bytes", KEY, 1, Body(i32(1_000_000) + i16(1) + b"a")),
    Exchange("metadata: 2^31 - 1 topics", KEY, 1, Body(i32(2**31 - 1))),
    Exchange("metadata: a count of -2 is null", KEY, 1, Body(i32(-2)), [Create()]),
    Exchange("metadata: a null array in v0", KEY, 0, Body(i32(-1))),
    Exchange("metadata: a null name in v1", KEY, 1, Body(i32(1) + i16(-1))),
    Exchange("metadata: a name of -7 bytes", KEY, 1, Body(i32(1) + i16(-7))),
    Exchange("metadata: a name longer than the frame", KEY, 1, Body(i32(1) + i16(500) + b"a")),
    Exchange("metadata: a compact count beyond the frame", KEY, 9, Body(b"\xff\xff\xff\x7f\x02a\0")),
    Exchange("metadata: a compact count of six bytes", KEY, 9, Body(b"\xff\xff\xff\xff\xff\x7f")),
    Exchange("metadata: a null compact name, v9", KEY, 9, Body(b"\x02\0\0\1\0\0\0")),
    Exchange("metadata: an empty body", KEY, 5, Body(b"")),
    Exchange("metadata: v13 cut by a byte", KEY, 13, Cut(metadata_of("t"), 1)),
    Exchange("metadata: v4 cut by a byte", KEY, 4, Cut(metadata_of("t"), 1)),
    Exchange(
        "metadata: bytes after the message", KEY, 4, Appended(metadata_of("t"), b"\xff" * 40), [Create()]
    ),
    Exchange("metadata: a flag of 2", KEY, 4, Patched(metadata_of("t"), -1, b"\x02"), [Create()]),
]
