"""Small records for minutes over etcd: what is inside of entries is moved, the journal is pruned, and etcd is
compacted, so that it stays small and nothing is refused."""

import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.faults.test_inline_far import metric
from tests.support.far_stores import ETCD_S3, FarGateway, FarPlace
from tests.support.topics import create_topics

TOPIC: Final = "t"
PARTITIONS: Final = 6
RECORD_BYTES: Final = 4_000
RATE: Final = 200
"""Records a second: a little less than `storage.inline_rate`."""
FULL_S: Final = 240
LONGEST_SHARE: Final = 0.2
WAIT_S: Final = 60.0


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("far", [ETCD_S3], indirect=True)
def test_etcd_stays_small_under_small_records_for_minutes(far: FarPlace, tmp_path: Path) -> None:
    gateway = FarGateway(far, tmp_path / "gateway")
    failures: list[str] = []
    used: list[float] = []
    try:
        gateway.start()
        create_topics(gateway.bootstrap, {TOPIC: PARTITIONS})
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "log_level": 0, "acks": "all"})
        began, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < FULL_S:
            while sent < elapsed * RATE:
                producer.produce(
                    TOPIC,
                    bytes([sent % 256]) * RECORD_BYTES,
                    partition=sent % PARTITIONS,
                    on_delivery=lambda error, _: failures.append(str(error)) if error else None,
                )
                sent += 1
            producer.poll(0.05)
            if int(elapsed) // 10 > len(used):
                used.append(metric(gateway, "dragoman_metadata_used_bytes"))
        assert producer.flush(WAIT_S) == 0 and failures == []
        inside = metric(gateway, "dragoman_inline_bytes_total")
        assert inside > 0.5 * sent * RECORD_BYTES
        quota = metric(gateway, "dragoman_metadata_quota_bytes")
        assert 0 < max(used) < LONGEST_SHARE * quota
    finally:
        gateway.stop()
