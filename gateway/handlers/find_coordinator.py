"""FindCoordinator (10), v0-6.

Every gateway takes the requests of every group and every transactional id, so the one that receives the
request names itself. Share groups have no coordinator yet.

v1: KeyType, throttle time, ErrorMessage. v2: throttled after the response. v3: flexible. v4: CoordinatorKeys,
several at once (KIP-699). v5: TRANSACTION_ABORTABLE (KIP-890). v6: share groups (KIP-932).
"""

import base64
import binascii
from enum import IntEnum
from typing import Final

from gateway.requests.context import RequestContext
from gateway.requests.transactional_ids import NO_TRANSACTIONS, refuse_transactions
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_BATCHES: Final = 4
FIRST_VERSION_WITH_SHARE_KEYS: Final = 6
NO_NODE: Final = -1
UUID_BYTES: Final = 16
NO_SUCH_TYPE: Final = "There are coordinators of groups (0), transactions (1) and shares (2) only."


class KeyType(IntEnum):
    """Kinds of coordinators, as the protocol numbers them."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TYPES: Final = frozenset(KeyType)


async def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.header.api_version >= FIRST_VERSION_WITH_BATCHES:
        return FindCoordinatorResponse(
            error_message=None,
            coordinators=[
                _coordinator(context, request.key_type, key)
                async for key in context.slices.paced(request.coordinator_keys)
            ],
        )
    found = _coordinator(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode(found.error_code).name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type == KeyType.TRANSACTION and not context.services.transactions.is_served:
        error = refuse_transactions(context, key)
        return Coordinator(key, NO_NODE, "", NO_NODE, error, NO_TRANSACTIONS)
    error = _refused(context.header.api_version, key_type, key)
    if error is not ErrorCode.NONE:
        context.error = error.name
        reason = "" if key_type in _TYPES else NO_SUCH_TYPE
        return Coordinator(key, NO_NODE, "", NO_NODE, error, reason)
    listener = context.listener
    return Coordinator(key, context.services.node_id, listener.host, listener.port)


def _refused(version: int, key_type: int, key: str) -> ErrorCode:
    match key_type:
        case KeyType.GROUP | KeyType.TRANSACTION:
            return ErrorCode.NONE
        case KeyType.SHARE if version < FIRST_VERSION_WITH_SHARE_KEYS or not _names_share(key):
            return ErrorCode.INVALID_REQUEST
        case KeyType.SHARE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_REQUEST


def _names_share(key: str) -> bool:
    """Whether it is `group:topic id:partition` (KIP-932), the id in URL-safe base64."""
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.partition(":")
    try:
        int(partition)
        return bool(group) and len(base64.urlsafe_b64decode(topic_id + "==")) == UUID_BYTES
    except (ValueError, binascii.Error):
        return False
