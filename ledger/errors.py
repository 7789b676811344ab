"""What can break under the ledger. A refusal is a value; these are for a broken world."""


class StoreError(Exception):
    """A backing store failed. The message names the store, what was tried, and the remedy."""


class StoreUnavailable(StoreError):
    """The call failed and certainly had no effect; trying again later may succeed."""


class OutcomeUnknown(StoreError):
    """The call may or may not have had its effect."""


class AlreadyExists(StoreError):
    """A create-only put met a key that is there."""


class NotFound(StoreError):
    """The object or range is not there."""


class StoreDamaged(StoreError):
    """Bytes that were durable do not read back as written: a wrong CRC, a torn or foreign structure."""


class StoreTooNew(StoreError):
    """The store was written in a format version that this build does not know."""


class StoreLocked(StoreError):
    """Another process holds the store; the message says who."""
