"""Settled ledgers that an audit reads: right ones pass, and any byte that is not as written is named."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.auditing import settled
from ledger.auditing.damages import Damage, DamageKind, Place
from ledger.auditing.settled import check_settled
from ledger.keys import settled_keys_of
from ledger.settled.state import SettledLedger
from ledger.types import TopicId
from pipeline.segments import Host
from pipeline.settling import LocalWriter, SettlingEngine, SettlingJob
from tests.support.settling_peer import SettlingPeer

T = TopicId(b"\1" * 16)
PLACE = Place("t", T, 0)


def made(flushes: int = 700) -> tuple[SettlingPeer, str, SettledLedger]:
    peer = SettlingPeer()
    peer.fill(flushes, records=1)
    SettlingJob(peer, SettlingEngine(LocalWriter(peer, os.urandom)), Host(peer.elapsed_s, os.urandom)).run()
    newest = peer.named[T, 0]
    assert newest.files is not None
    locator, *sizes = newest.files
    as_of = newest.entry, newest.high_watermark, newest.layout_version
    return peer, locator, SettledLedger(1, sizes[0], sizes[1], sizes[2], *as_of, b"j" * 16, 1)


PEER, LOCATOR, KNOWN = made()


def audited(objects: dict[str, bytes], place: Place = PLACE) -> list[Damage]:
    damages: list[Damage] = []
    reading = check_settled(place, LOCATOR, KNOWN, damages.append)
    wanted = next(reading)
    try:
        while True:
            data = objects.get(wanted.locator, b"")[wanted.start : wanted.start + wanted.size]
            wanted = reading.send(data if len(data) == wanted.size else None)
    except StopIteration:
        return damages


@pytest.mark.parametrize("piece_bytes", [100, 5_000, 2**20])
def test_what_was_written_passes_in_pieces_of_any_size(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settled, "PIECE_BYTES", piece_bytes)
    assert audited(dict(PEER.objects)) == []


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(settled_keys_of(LOCATOR)[:2]), st.integers(0, 10**6), st.integers(0, 7))
def test_every_flipped_bit_is_named_with_the_partition(key: str, at: int, bit: int) -> None:
    objects = dict(PEER.objects)
    data = bytearray(objects[key])
    # Not of a version, which may be one of a newer build.
    at %= len(data) - 6
    data[at + 6] ^= 1 << bit
    objects[key] = bytes(data)
    (damage,) = audited(objects)
    assert damage.kind is DamageKind.SETTLED_LEDGER
    assert (damage.topic, damage.partition) == ("t", 0)
    assert "dragoman compact ledger" in damage.remedy


@pytest.mark.parametrize("key", settled_keys_of(LOCATOR), ids=["log", "index", "json"])
@pytest.mark.parametrize("kept", [0, -1])
def test_a_file_that_is_missing_or_short_is_named(key: str, kept: int) -> None:
    objects = dict(PEER.objects)
    objects[key] = objects[key][:kept]
    (damage,) = audited(objects)
    assert damage.object == key


def test_one_of_another_partition_is_named() -> None:
    (damage,) = audited(dict(PEER.objects), place=Place("u", TopicId(b"u" * 16), 0))
    assert damage.what == "it is of another partition"
