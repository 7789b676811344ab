"""The refusal of transactional clients, where the ledger may not hold transactions yet.

Of the errors that were tried only TRANSACTIONAL_ID_AUTHORIZATION_FAILED makes librdkafka, the Java clients,
kafka-python and aiokafka fail at once. Each of them repeats a request after COORDINATOR_NOT_AVAILABLE until
its timeout, and librdkafka also after INVALID_REQUEST and UNSUPPORTED_VERSION.
"""

from typing import Final

from gateway.requests.context import RequestContext
from gateway.telemetry.logs import QuietLog
from gateway.wire.errors import ErrorCode
from ledger.records import LEVEL_WITH_TRANSACTIONS

NO_TRANSACTIONS: Final = (
    f"Transactional ids cannot be used below feature level {LEVEL_WITH_TRANSACTIONS} of the ledger. "
    f"Start the gateway once with ledger.feature_level = {LEVEL_WITH_TRANSACTIONS}."
)
LOG_QUIET_S: Final = 60.0

_LOG = QuietLog(LOG_QUIET_S, keyed_by=())


def refuse_transactions(context: RequestContext, transactional_id: str) -> ErrorCode:
    """The error to return. Its message is NO_TRANSACTIONS, where the response has a field for one."""
    context.error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.name
    _LOG.warning(
        "transactions.refused",
        reason=NO_TRANSACTIONS,
        transactional_id=transactional_id,
        client_id=context.client_id,
        principal=context.principal,
        peer=context.peer_host,
    )
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
