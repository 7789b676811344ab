"""A journal in a bucket: a start reads its entries side by side, in order, at most 128 at once."""

import asyncio

import pytest

pytest.importorskip("adapters.s3.transport", reason="needs the extra s3: pip install dragoman[s3]")

from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.metadata.s3 import S3Metadata
from adapters.s3.client import Limits, S3Client
from adapters.s3.results import GetResult
from adapters.s3.transport import Accept
from gateway.coordination.journal import consecutive_entries
from ledger.journal import NONCE_BYTES, encode_entry
from tests.support.s3_transport import MemoryTransport
from tests.support.virtual_time import run_virtually

UNHEDGED = Limits(hedge_share=0.0)
REQUEST_S = 0.03
ENTRIES = 10_000


class CountingTransport(MemoryTransport):
    def __init__(self) -> None:
        super().__init__(usual_s=REQUEST_S)
        self.under_way = self.most = 0

    async def get(self, key: str, start: int, size: int | None, accept: Accept) -> GetResult:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().get(key, start, size, accept)
        finally:
            self.under_way -= 1


def test_ten_thousand_entries_at_30_ms_a_request_are_read_in_five_seconds() -> None:
    async def scenario() -> tuple[float, CountingTransport, MetadataJournal]:
        transport = CountingTransport()
        for number in range(ENTRIES):
            nonce = number.to_bytes(NONCE_BYTES, "big")
            transport.objects[entry_key(0, number)] = encode_entry(1, 0, nonce, [])
        store = S3Metadata(S3Client(transport, "s3://bucket/", UNHEDGED))
        journal, began = MetadataJournal(store, 0), asyncio.get_running_loop().time()
        found = [stored.number async for stored in consecutive_entries(journal, 0)]
        took_s = asyncio.get_running_loop().time() - began
        await store.close()
        assert found == list(range(ENTRIES))
        return took_s, transport, journal

    took_s, transport, journal = run_virtually(scenario)
    assert took_s < 5.0
    assert transport.most == UNHEDGED.reads_at_once
    # What a snapshot is due by is near to what it took.
    assert journal.read_back.estimated_s(ENTRIES, 0) == pytest.approx(took_s, rel=0.5)
