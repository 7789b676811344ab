"""The pin of a job, from its renewals: whether it is still the one that was taken."""

import pytest

from ledger.swaps.requests import Pinned
from pipeline.pins import RENEW_S, Pin, PinLost, numbered

JOB = b"j" * 16


class Gateway:
    def __init__(self) -> None:
        self.pinned = Pinned(7, 1_000)

    def pin(self, job: bytes) -> Pinned:
        return self.pinned

    def release(self, job: bytes) -> None: ...


@pytest.mark.parametrize("later", [Pinned(8, 1_000), Pinned(7, 5_000)], ids=["entry", "time"])
def test_a_pin_that_is_another_one_is_lost(later: Pinned) -> None:
    """A restored ledger counts its entries from the backup, so a new pin may get the number of the old."""
    gateway, times = Gateway(), [0.0]
    pin = Pin(gateway, lambda size: JOB[:size], lambda: times[0])
    times[0] += RENEW_S
    pin.keep()
    gateway.pinned = later
    pin.keep()
    times[0] += RENEW_S
    with pytest.raises(PinLost):
        pin.keep()


def test_the_pins_of_a_job_have_ids_of_which_its_starter_knows_the_beginning() -> None:
    ids = numbered(b"b" * 12)
    pins = [Pin(Gateway(), ids, lambda: 0.0) for _ in range(2)]
    assert [pin.job for pin in pins] == [b"b" * 12 + bytes(4), b"b" * 12 + bytes(3) + b"\1"]
