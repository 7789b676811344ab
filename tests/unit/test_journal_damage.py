"""Keys and values of a journal that do not read back as written: StoreDamaged that names them."""

from collections.abc import Sequence

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal, decode_start, encode_start, entry_key, start_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.recovery import recover
from ledger.errors import StoreDamaged
from ledger.ports import SCAN_BYTES, MetadataStore, Versioned
from tests.support.held_stores import HeldMetadata
from tests.support.shards import open_shard

NONCE = bytes(range(16))


async def journal_of_one() -> MetadataJournal:
    store = MemoryMetadata()
    shard = await open_shard(store, MemoryBlobs(), None, 1, lambda: 1_000)
    await shard.close()
    return MetadataJournal(store, 0)


class WithDamagedKey(HeldMetadata):
    """A store with a key that damage has made: no store takes such a key."""

    def __init__(self, store: MetadataStore, key: str) -> None:
        super().__init__(store)
        self._key = key

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        found = list(await super().scan(prefix, start, limit))
        if self._key >= start:
            found.append((self._key, Versioned(b"", "1")))
        return sorted(found, key=lambda pair: pair[0])[:limit]


@pytest.mark.parametrize("value", [b"2\0damaged", b"", b"x", b"2 ", b"-1 " + b"0" * 32, b"2 " + b"0" * 31])
async def test_a_damaged_start_is_named(value: bytes) -> None:
    journal = await journal_of_one()
    await journal.store.put(start_key(0), value, None)
    with pytest.raises(StoreDamaged, match="the value of the key 'journal-start/0' is damaged"):
        await recover(journal, None, None)


def test_every_flipped_bit_of_a_start_is_noticed() -> None:
    value = encode_start(1234, NONCE)
    assert decode_start(value, "key") == 1234
    for bit in range(8 * len(value)):
        damaged = bytearray(value)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreDamaged):
            decode_start(bytes(damaged), "key")


def test_a_start_that_an_older_build_has_written_is_read() -> None:
    assert decode_start(b"17 " + NONCE.hex().encode(), "key") == 17


@pytest.mark.parametrize(
    "digits", ["00000 00000000000001", "0000000000000000000x", "1", "00000000000000000001/x"]
)
async def test_a_key_that_is_no_entrys_is_named(digits: str) -> None:
    journal = await journal_of_one()
    journal = MetadataJournal(WithDamagedKey(journal.store, f"journal/0/{digits}"), 0)
    with pytest.raises(StoreDamaged, match=f"a key 'journal/0/{digits}', which is not that of an entry"):
        await recover(journal, None, None)


async def test_keys_that_are_out_of_order_are_damage_and_not_read_for_ever() -> None:
    journal = await journal_of_one()

    class Disordered(MemoryMetadata):
        async def scan(self, prefix: str, start: str = "", limit: int = 1000):  # type: ignore[no-untyped-def]
            found = await journal.store.scan(prefix, "", limit)
            return [(entry_key(0, number), found[0][1]) for number in (1, 2, 1)]

    with pytest.raises(StoreDamaged, match=f"'{entry_key(0, 1)}' after entry 2"):
        await MetadataJournal(Disordered(), 0).read(0, SCAN_BYTES)
