"""A bit that flips in the last frame of a local log while the gateway is stopped: after an orderly stop image
and mark say that the entry was durable, so the start is refused, and no offset is given again."""

from pathlib import Path
from typing import Final

import pytest

from adapters.local_log.parts import LogPartFile
from ledger.formats.local_log import FRAME_HEAD_BYTES, SEAL_BYTES, read_header
from tests.faults.load import Load, problems, read_all
from tests.support.gateway import GatewayFactory
from tests.support.topics import create_topics

REFUSED: Final = 4
START_S: Final = 60.0
PARTITIONS: Final = 2


def last_frame_at(path: Path) -> tuple[int, int]:
    """Where the last frame of a log file begins and ends."""
    header = read_header(path.read_bytes(), str(path))
    assert header is not None
    part = LogPartFile(header, path, str(path))
    part.scan()
    return part.position_of(part.known_end - 1), part.tail_at


@pytest.mark.timeout(180)
def test_a_flipped_bit_in_the_last_frame_is_found_after_an_orderly_stop(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory()
    gateway.options += ["--metadata", f"file:{gateway.data_dir}"]
    gateway.start()
    create_topics(gateway.bootstrap, {"t": PARTITIONS})
    load = Load(gateway.bootstrap, "p", "t", PARTITIONS, max_records=50).start()
    load.complete()
    assert gateway.terminate() == 0
    path = max(gateway.data_dir.glob("log/0/*.log"))
    whole = path.read_bytes()
    begin, end = last_frame_at(path)
    for at in (begin + FRAME_HEAD_BYTES - 20, end - SEAL_BYTES - 3, end - 1):
        flipped = bytearray(whole)
        flipped[at] ^= 4
        path.write_bytes(flipped)
        gateway.launch()
        assert gateway.wait_for_exit(START_S) == REFUSED, gateway.log_tail()
        assert path.read_bytes() == bytes(flipped), "a start that is refused changes nothing"
    path.write_bytes(whole)
    gateway.start()
    assert problems(read_all(gateway.bootstrap, {"t": PARTITIONS}), load.acks) == []
