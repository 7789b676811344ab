"""The client of jobs against frames that are written by hand."""

import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from ledger.errors import ErrorName
from ledger.objects.uploads import ObjectKind
from ledger.requests import Refused
from ledger.swaps.requests import Pinned, SegmentFile, SegmentRun, Swapped, SwapSegments
from ledger.types import TopicId
from pipeline.engines.process import PeerPlace
from pipeline.links import UNIX_PATH_BYTES, InheritedLink, UnixLink, Unreachable
from pipeline.messages import ERRORS, RESOURCE_NOT_FOUND, FoundRun, RunQuery
from pipeline.peer import PeerClient, PeerRefused, PeerUnavailable
from tests.support.peers import ScriptedPeer

TOPIC = TopicId(bytes.fromhex("00112233445566778899aabbccddeeff"))
JOB = bytes.fromhex("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
SWAP = SwapSegments(
    JOB,
    2,
    TOPIC,
    1,
    10,
    29,
    7,
    [SegmentFile("a", 200), SegmentFile("b", 100)],
    [SegmentRun(0, 32, 152, 10, 19, 1000), SegmentRun(1, 32, 52, 20, 29, -1)],
)
REQUEST_HEAD = "0000 00000001 0011 647261676f6d616e2d706970656c696e65 00"
"""Version 0, correlation id 1, client id "dragoman-pipeline", no tagged fields."""
SHARD = (
    "00000000"  # throttle time
    "0000 00"  # no error, no message
    "08 436c7573746572"  # cluster id "Cluster"
    "08 66696c653a2f64"  # data URL "file:/d"
    "0003"  # feature level
    "000000000000002a"  # entries applied
    "0000018bcfe56800"  # entry time
)
ONE_TOPIC = "00112233445566778899aabbccddeeff 02 74 00000003 00"
OTHER_TOPIC = "ff112233445566778899aabbccddeeff 02 75 00000001 00"
FOUND = (
    "00000000"  # throttle time
    "02"  # one topic
    "00112233445566778899aabbccddeeff"
    "02"  # one partition
    "00000002 0000"  # index, error
    "0000000000000005 0000000000000014"  # log start offset, high watermark
    "02"  # one batch
    "000000000000000a"  # batch id
    "06 7365672f78"  # object key "seg/x"
    "02"  # magic
    "0000000000000020 0000000000000064"  # byte offset, byte size
    "000000000000000a 0000000000000013"  # base and last offset
    "ffffffffffffffff 00000000000003e8 ff"  # log append time, max timestamp, timestamp type
    "01 02 01 02"  # one tagged field: 2, of 1 byte: a segment
    "01 00 04 00000007"  # of the partition: 0, of 4 bytes: layout version 7
    "00"  # of the topic
    "00"  # of the message
)
STORAGE_ERROR = "00000000 0038 06 7374616c65 0000000000000000 0000000000000000 01 00"
"""A JournalFollow: error 56, message "stale"."""
JOURNAL = (
    "00000000 0000 00"  # throttle time, no error, no message
    "0000000000000002 0000000000000009"  # start, durable end
    "02 0000000000000008 03 abcd 00"  # one entry: number 8, two bytes
    "00"
)


def peer_of(*responses: str | None) -> ScriptedPeer:
    return ScriptedPeer([None if text is None else bytes.fromhex(text) for text in responses])


def client_of(peer: ScriptedPeer, timeout_s: float = 5.0) -> PeerClient:
    here, there = socket.socketpair()
    there.settimeout(5.0)
    peer.in_thread(there)
    return PeerClient(InheritedLink(here.detach()), timeout_s)


def listening(path: Path, peer: ScriptedPeer) -> UnixLink:
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(5.0)
    listener.bind(str(path))
    listener.listen()
    peer.in_thread(listener, listens=True)
    return UnixLink(path)


def sent(peer: ScriptedPeer, key: str, body: str) -> bool:
    """Whether the only request is this one, but for what is left of its time: the last field."""
    (frame,) = peer.requests
    expected = bytes.fromhex(key + REQUEST_HEAD + body)
    left_ms = int.from_bytes(frame[-5:-1], "big")
    return frame == expected[:-5] + frame[-5:-1] + expected[-1:] and 0 < left_ms <= 5_000


def test_a_shard_is_described_by_page() -> None:
    peer = peer_of(SHARD + "02" + ONE_TOPIC + "01 00", SHARD + "02" + OTHER_TOPIC + "00 00")
    with client_of(peer) as client:
        assert [(topic.name, topic.partitions) for topic in client.topics()] == [("t", 3), ("u", 1)]
    first, second = peer.requests
    assert bytes(16) in first and bytes(TOPIC) not in first
    assert bytes(TOPIC) in second


def test_a_description_has_what_a_job_needs() -> None:
    peer = peer_of(SHARD + "02" + ONE_TOPIC + "00 00")
    with client_of(peer) as client:
        shard = client.describe(max_topics=7)
    assert (shard.cluster_id, shard.data_url, shard.feature_level) == ("Cluster", "file:/d", 3)
    assert (shard.applied, shard.entry_time_ms) == (42, 1_700_000_000_000)
    assert shard.topics[0].topic_id == TOPIC and not shard.has_more
    assert sent(peer, "4e25", "00000000" + "00" * 16 + "00000007 00000000 00")


def test_runs_are_found_with_their_layout_version() -> None:
    peer = peer_of(FOUND)
    with client_of(peer) as client:
        found = client.find_batches(TOPIC, 2, 10, max_batches=3)
    assert (found.layout_version, found.log_start, found.high_watermark) == (7, 5, 20)
    assert found.runs == [FoundRun("seg/x", ObjectKind.SEGMENT, 32, 100, 10, 19, 1000)]
    body = (
        "7fffffff 00000003 02" + TOPIC.hex() + "02 00000002 000000000000000a 7fffffff 00" + "00 00000000 00"
    )
    assert sent(peer, "0062", body)


def test_partitions_that_the_response_leaves_out_are_an_error() -> None:
    with client_of(peer_of(FOUND)) as client, pytest.raises(PeerUnavailable, match="left partitions out"):
        client.find_many([RunQuery(TOPIC, 2, 10), RunQuery(TOPIC, 3, 0)])


def test_offsets_are_listed() -> None:
    listed = "00000000 02" + TOPIC.hex() + "02 00000001 0000 00 ffffffffffffffff 0000000000000009 00 00 00"
    peer = peer_of(listed)
    with client_of(peer) as client:
        assert client.list_offsets(TOPIC, [1], -1)[1].offset == 9
    body = "02" + TOPIC.hex() + "02 00000001 ffffffffffffffff 00 00 00000000 00"
    assert sent(peer, "0061", body)


def test_a_file_that_no_commit_has_named_is_not_known() -> None:
    peer = peer_of("00000000 03 02 61 0000 00 01 00 02 62 005b 03 6e6f 00 00 00")
    with client_of(peer) as client:
        live, unknown = client.describe_files(["a", "b"])
    assert (live.is_known, live.has_live_batches) == (True, True)
    assert (unknown.object_key, unknown.is_known, unknown.has_live_batches) == ("b", False, False)
    assert sent(peer, "0064", "03 02 61 00 02 62 00 00000000 00")


def test_the_journal_is_followed_as_stored() -> None:
    peer = peer_of(JOURNAL)
    with client_of(peer) as client:
        page = client.journal(8, max_bytes=100, max_wait_ms=50)
    assert (page.start, page.durable_end) == (2, 9)
    assert [(entry.number, entry.data) for entry in page.entries] == [(8, b"\xab\xcd")]
    body = "00000000 0000000000000008 00000064 00000032 00000000 00"
    assert sent(peer, "4e21", body)


def test_a_swap_names_runs_below_their_segments() -> None:
    peer = peer_of("00000000 0000 00 00000008 0000000000000002 01 00 01 01")
    with client_of(peer) as client:
        assert client.swap(SWAP) == Swapped(8, 2, duplicate=True)
    body = (
        JOB.hex()  # job id
        + "00000002"  # attempt
        + TOPIC.hex()
        + "00000001"  # partition
        + "000000000000000a 000000000000001d"  # first, last
        + "00000007"  # layout version
        + "03"  # two segments
        + "02 61 00000000000000c8"  # object key "a", 200 bytes
        + "02 00000020 00000098 000000000000000a 0000000000000013 00000000000003e8 00"  # its run
        + "00"
        + "02 62 0000000000000064"  # object key "b", 100 bytes
        + "02 00000020 00000034 0000000000000014 000000000000001d ffffffffffffffff 00"  # its run
        + "00"
        + "00000000 00"
    )
    assert sent(peer, "4e23", body)


@pytest.mark.parametrize(
    ("code", "error"), [("005f", ErrorName.INVALID_UPDATE_VERSION), ("0038", ErrorName.KAFKA_STORAGE_ERROR)]
)
def test_a_swap_that_would_be_refused_again_is_sent_once(code: str, error: ErrorName) -> None:
    peer = peer_of(f"00000000 {code} 03 6e6f 00000000 0000000000000000 00")
    with client_of(peer) as client:
        assert client.swap(SWAP) == Refused(error, "no")
    assert len(peer.requests) == 1


@pytest.mark.parametrize("code", ["0007", "000f"])
def test_a_swap_whose_outcome_is_unknown_or_that_may_succeed_later_is_sent_again(code: str) -> None:
    peer = peer_of(f"00000000 {code} 00 00000000 0000000000000000 00", "00000000 0000 00 00000008" + "00" * 9)
    with client_of(peer) as client:
        assert client.swap(SWAP) == Swapped(8, 0)
    first, second = peer.requests
    assert first[8:-5] == second[8:-5]


def test_a_swap_without_a_known_outcome_is_not_refused() -> None:
    unknown = "00000000 0007 00 00000000 0000000000000000 00"
    with client_of(peer_of(*[unknown] * 9), 0.3) as client:
        with pytest.raises(PeerUnavailable, match="outcome of the swap is unknown"):
            client.swap(SWAP)


def test_a_pin_is_taken_and_released() -> None:
    pinned = "00000000 0000 00 0000000000000005 0000000000000009 00"
    taking, releasing = peer_of(pinned), peer_of(pinned)
    with client_of(taking) as client:
        assert client.pin(JOB) == Pinned(5, 9)
    with client_of(releasing) as client:
        client.release(JOB)
    assert sent(taking, "4e24", JOB.hex() + "00 00000000 00")
    assert sent(releasing, "4e24", JOB.hex() + "01 00000000 00")


def test_a_pin_that_is_refused_says_why() -> None:
    refused = "00000000 0023 04 6c6f77 0000000000000000 0000000000000000 00"
    with client_of(peer_of(refused)) as client, pytest.raises(PeerRefused, match="UNSUPPORTED_VERSION: low"):
        client.pin(JOB)


def test_a_retriable_error_is_tried_again() -> None:
    peer = peer_of(STORAGE_ERROR, JOURNAL)
    with client_of(peer) as client:
        assert client.journal(8).durable_end == 9
    assert len(peer.requests) == 2


def test_a_retriable_error_that_stays_is_refused_at_the_deadline() -> None:
    with client_of(peer_of(*[STORAGE_ERROR] * 9), 0.4) as client:
        with pytest.raises(PeerRefused, match="KAFKA_STORAGE_ERROR: stale") as refused:
            client.journal(8)
    assert refused.value.error is ErrorName.KAFKA_STORAGE_ERROR


def test_another_error_is_refused_at_once() -> None:
    invalid = STORAGE_ERROR.replace("0038", "002a")
    peer = peer_of(invalid, JOURNAL)
    with client_of(peer) as client, pytest.raises(PeerRefused, match="INVALID_REQUEST"):
        client.journal(8)
    assert len(peer.requests) == 1


def test_a_lost_connection_is_made_again(tmp_path: Path) -> None:
    peer = peer_of(None, JOURNAL)
    with PeerClient(listening(tmp_path / "s", peer), 5.0) as client:
        assert client.journal(8).durable_end == 9
    assert peer.connections == 2


def test_an_inherited_connection_is_lost_for_good() -> None:
    with client_of(peer_of(None, JOURNAL)) as client:
        with pytest.raises(PeerUnavailable, match="has closed"):
            client.journal(8)
        with pytest.raises(PeerUnavailable, match="has closed their connection"):
            client.journal(8)


def test_a_gateway_that_stays_silent_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.peer.GRACE_S", 0.0)
    here, there = socket.socketpair()
    with there, PeerClient(InheritedLink(here.detach()), 0.3) as client:
        with pytest.raises(PeerUnavailable, match="no response"):
            client.journal(8)


@pytest.mark.parametrize("cut", [1, 5, 12, 30])
def test_a_response_that_ends_too_early_is_an_error(cut: int) -> None:
    whole = bytes.fromhex(JOURNAL)
    peer = ScriptedPeer([whole[:-cut]])
    with client_of(peer) as client, pytest.raises(PeerUnavailable):
        client.journal(8)


def test_a_count_that_the_response_cannot_have_is_an_error() -> None:
    peer = peer_of("00000000 ffffffff0f 00")
    with client_of(peer) as client, pytest.raises(PeerUnavailable, match="an array of"):
        client.find_batches(TOPIC, 0, 0)


def test_a_path_that_is_too_long_for_a_socket_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert len(str(deep / "s")) > UNIX_PATH_BYTES
    short = tmp_path / "s"
    peer = peer_of(JOURNAL)
    listening(short, peer)
    short.rename(deep / "s")
    with PeerClient(UnixLink(deep / "s"), 5.0) as client:
        assert client.journal(8).durable_end == 9


@pytest.mark.parametrize(("name", "why"), [("none", "there is no such socket"), ("stale", "nothing listens")])
def test_a_socket_where_nothing_listens_is_named(tmp_path: Path, name: str, why: str) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "stale"))
    with pytest.raises(Unreachable, match=why):
        UnixLink(tmp_path / name).connect(1.0)


def test_a_gateway_that_was_never_there_is_reported_at_once(tmp_path: Path) -> None:
    with PeerClient(UnixLink(tmp_path / "none"), 60.0) as client:
        with pytest.raises(PeerUnavailable, match="there is no such socket"):
            client.journal(0)


def test_a_gateway_that_does_not_come_back_is_not_waited_for(tmp_path: Path) -> None:
    listening(tmp_path / "s", ScriptedPeer([bytes.fromhex(JOURNAL), None]))
    link = PeerPlace(path=str(tmp_path / "s"), once=True).link()
    with PeerClient(link, 60.0) as client:
        assert client.journal(8).durable_end == 9
        began_s = time.monotonic()
        with pytest.raises(PeerUnavailable, match="no response of the gateway"):
            client.journal(9)
        assert time.monotonic() - began_s < 20.0


def test_errors_have_kafkas_codes() -> None:
    gateways: Sequence[tuple[int, ErrorName]] = [(int(ERROR_CODES[name]), name) for name in ERRORS.values()]
    assert list(ERRORS.items()) == gateways
    assert ErrorCode(RESOURCE_NOT_FOUND) is ErrorCode.RESOURCE_NOT_FOUND


def test_after_a_move_of_the_records_nothing_is_swapped_in(tmp_path: Path) -> None:
    """What the job has written is in the place before."""
    moved = SHARD.replace(b"file:/d".hex(), b"file:/e".hex())
    assert moved != SHARD
    here, there = (bytes.fromhex(shard + "02" + ONE_TOPIC + "00 00") for shard in (SHARD, moved))
    peer = ScriptedPeer([here, None, here, None, there])
    with PeerClient(listening(tmp_path / "s", peer), 2.0) as client:
        client.describe()
        with pytest.raises(PeerUnavailable, match="by now, no longer in file:/d"):
            client.swap(SWAP)
    keys = [frame[:2].hex() for frame in peer.requests]
    assert keys == ["4e25", "4e23", "4e25", "4e23", "4e25"]
