"""How many drafts may be under way, and of how many bytes (sans-I/O).

A draft holds its bytes until it is committed, also after its requests were answered with a timeout and have
returned their memory. So it is bounded here what a store or a journal that hangs can hold.
"""

from typing import Final

COMMITS_A_WRITE: Final = 4
"""Over a store where writes overlap: how many drafts may be under way, written or waiting for the journal,
for each that may be written at the same time, and of how many bytes. A journal may take longer than a
write."""

LOCAL_WRITES: Final = 4
"""More drafts are not written at the same time over one disk."""

UPLOAD_BYTES: Final = 64 * 1024 * 1024


class Uploads:
    """Drafts under way, and those of them that are being written."""

    def __init__(self, max_writes: int, max_bytes: int, *, overlapping: bool) -> None:
        """`max_bytes` of the drafts that are written at the same time, unless there is only one."""
        self._max_writes = max_writes if overlapping else min(max_writes, LOCAL_WRITES)
        self._max_drafts = self._max_writes * (COMMITS_A_WRITE if overlapping else 1)
        self._max_bytes = max_bytes
        self._bytes = self._writing_bytes = 0
        self.drafts = self.writing = 0

    def may_begin(self, size: int) -> bool:
        """Whether another draft of this size may."""
        if not self.drafts:
            return True
        if self.drafts >= self._max_drafts or self._bytes + size > self._max_bytes * COMMITS_A_WRITE:
            return False
        if not self.writing:
            return True
        return self.writing < self._max_writes and self._writing_bytes + size <= self._max_bytes

    def begin(self, size: int) -> None:
        self.drafts += 1
        self.writing += 1
        self._bytes += size
        self._writing_bytes += size

    def written(self, size: int) -> None:
        """Or failed to be."""
        self.writing -= 1
        self._writing_bytes -= size

    def end(self, size: int) -> None:
        """Its batches have their results."""
        self.drafts -= 1
        self._bytes -= size
