"""Kafka's error codes by the names that the ledger and the services use."""

from collections.abc import Mapping
from typing import Final

from gateway.wire.errors import ErrorCode
from ledger.errors import ErrorName

ERROR_CODES: Final[Mapping[ErrorName, ErrorCode]] = {name: ErrorCode[name] for name in ErrorName}
