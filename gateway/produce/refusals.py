"""A refusal of one partition of a produce request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ledger.errors import ErrorName

MAX_SHOWN: Final = 1000
"""Records of one batch that a refusal names; Kafka names all of them."""

GATEWAY_FAILED: Final = "the gateway failed; its log says how"
STOPPED: Final = "the gateway was stopped"
SHUTTING_DOWN: Final = "the gateway is shutting down"
OVERTAKEN: Final = "the object of the batch became too old, and later batches of the partition went on"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kafka's error name, a readable reason, and (index, reason) of single records (KIP-467). With `in_log`
    the response has the log start offset."""

    error: ErrorName
    message: str
    records: Sequence[tuple[int, str]] = ()
    in_log: bool = False
