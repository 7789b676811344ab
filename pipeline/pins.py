"""The pin of a job: what was live when it was taken stays readable, and keys that are no older may be swapped
in."""

from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from ledger.swaps.requests import JOB_BYTES, Pinned

RENEW_S: Final = 60.0
"""How often the pin is renewed. The owner releases one that was not renewed for ten minutes."""


class PinLost(Exception):
    """The pin expired before it was renewed, or ended with a restore or a move, so what was planned may be
    gone."""


def numbered(beginning: bytes) -> Callable[[int], bytes]:
    """In the place of random ids: ids that begin with what the starter of the job has given to it, which so
    finds and releases the pins of a job that was killed."""
    numbers = count()
    return lambda size: beginning + next(numbers).to_bytes(size - len(beginning), "big")


class Pinner(Protocol):
    """As `pipeline.peer.PeerClient`."""

    def pin(self, job: bytes) -> Pinned:
        """Take a pin, or renew it."""
        ...

    def release(self, job: bytes) -> None: ...


class Pin:
    """A pin, from its taking to its release. For one thread."""

    def __init__(
        self, pinner: Pinner, random: Callable[[int], bytes], elapsed_s: Callable[[], float]
    ) -> None:
        """`elapsed_s` is monotonic. Errors: PeerUnavailable, PeerRefused."""
        self._pinner = pinner
        self._elapsed_s = elapsed_s
        self.job = random(JOB_BYTES)
        """A job whose pin was lost takes a new one under another id."""
        self._pinned = pinner.pin(self.job)
        self._taken_s = self._renewed_s = elapsed_s()

    @property
    def entry(self) -> int:
        """The number of the journal entry that holds it."""
        return self._pinned.entry

    @property
    def started_ms(self) -> int:
        """The journal's time when it was taken."""
        return self._pinned.started_ms

    def now_ms(self) -> int:
        """For the keys of segments: the journal's time, whatever the clock of this machine. Below the orphan
        floor a key would be refused; one from the future would stay for long if nothing came to name it."""
        return self._pinned.started_ms + int((self._elapsed_s() - self._taken_s) * 1000)

    def keep(self) -> None:
        """Renew it, if that is due. Call it after every piece of work. Errors: PinLost; PeerUnavailable,
        PeerRefused."""
        now_s = self._elapsed_s()
        if now_s - self._renewed_s < RENEW_S:
            return
        # In a ledger that was restored, a new pin may have got the same entry.
        if self._pinner.pin(self.job) != self._pinned:
            raise PinLost
        self._renewed_s = now_s

    def release(self) -> None:
        self._pinner.release(self.job)
