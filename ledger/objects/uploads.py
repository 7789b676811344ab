"""Who stored an object, and which of its drafts are settled.

An uploader numbers its drafts from 1 on, in the order in which it hands their commits over. With each commit
it declares up to which number all of them are settled: they have their results, and no commit of them will be
repeated. So the ledger drops the results that it keeps for repeats, and refuses a commit of a settled draft.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

NO_GATEWAY = -1
INCARNATION_BYTES = 16


class ObjectKind(IntEnum):
    """What the bytes of an object are. Numbers are never given twice."""

    WAL = 1
    SEGMENT = 2
    """Batches of one partition in the order of their offsets, written by a job."""
    INLINE = 3
    """Batches inside of a journal entry (`ledger/formats/inline.py`). It goes with its entry: so it is never
    garbage, and unknown from its last live run on."""
    SETTLED = 4
    """No batches: where those of a partition are, as a job wrote it (`ledger/formats/settled.py`). No run is
    in it, and it is garbage once it is not the newest one of its partition."""
    MARKER = 5
    """No object: a run that is the end of a transaction (`ledger/partitions/markers.py`). Only what jobs are
    sent has this kind. Merges put such runs into segments."""


class Uploader(NamedTuple):
    """One process of a gateway; `incarnation` is 16 random bytes."""

    gateway: int
    incarnation: bytes


NO_UPLOADER = Uploader(NO_GATEWAY, bytes(INCARNATION_BYTES))
"""Of objects that were committed at feature level 1, or by a tool."""


class Upload(NamedTuple):
    """One draft, and up to which draft all of its uploader are settled."""

    uploader: Uploader
    draft: int
    settled: int


class PendingDraft(NamedTuple):
    """A committed draft that is not settled: its batches start from `first` to `last` in the object."""

    draft: int
    object_number: int
    first: int
    last: int


class UploaderState:
    """What the ledger knows of one uploader."""

    __slots__ = ("newest_ms", "pending", "settled")

    def __init__(self) -> None:
        self.settled = 0
        self.newest_ms = 0
        """The time of its newest object, or of the entry of its last commit if that is later: a draft that is
        stored again has a newer key than drafts committed before it."""
        self.pending: list[PendingDraft] = []


class Uploaders(dict[Uploader, UploaderState]):
    """All uploaders of which the ledger may still meet a commit."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[Uploader, Uploader] = {}

    def committed(self, upload: Upload, newest_ms: int, pending: PendingDraft) -> Iterable[PendingDraft]:
        """Note a committed draft; no object of its uploader is newer than `newest_ms`. Returns the drafts
        that its uploader has declared settled with it."""
        known = self.get(upload.uploader)
        if known is None:
            known = self[upload.uploader] = UploaderState()
        known.newest_ms = max(known.newest_ms, newest_ms)
        known.pending.append(pending)
        # A draft may have been settled by a commit before it in its own entry.
        if upload.settled <= known.settled < upload.draft:
            return ()
        known.settled = max(known.settled, upload.settled)
        settled = [each for each in known.pending if each.draft <= known.settled]
        known.pending = [each for each in known.pending if each.draft > known.settled]
        return settled

    def shared(self, uploader: Uploader) -> Uploader:
        """The one that is kept of all that are equal to it, so that many objects take the memory of one."""
        return self._names.setdefault(uploader, uploader)

    def is_settled(self, upload: Upload) -> bool:
        """Whether no commit of this draft may come any more."""
        known = self.get(upload.uploader)
        return upload.draft <= max(upload.settled, known.settled if known is not None else 0)

    def drop_below(self, floor_ms: int) -> list[Uploader]:
        """Forget those whose objects are all below the orphan floor: their commits are refused for that.
        Returns them."""
        dropped = [uploader for uploader, known in self.items() if known.newest_ms < floor_ms]
        for uploader in dropped:
            del self[uploader]
        if dropped:
            # No further object will have the others, which objects from an image may have.
            self._names = {name: name for name in self._names if name in self}
        return dropped
