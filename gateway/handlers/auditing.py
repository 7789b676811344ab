"""The trace of who changed what: one event at level info for each durable change that a client asks for.

Nothing is written for what is refused or only validated. Where the journal did not answer in time, the change
may have been made: then the event has outcome="unknown".
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from typing import Final, TypeVar

import structlog

from gateway.context import RequestContext
from gateway.topics.altering import OPERATIONS, ConfigEdit, ResourceEdit, ResourceType
from gateway.topics.creation import NewTopic
from ledger.quotas import QuotaEntity
from ledger.requests import ConfigOp, Refused

log = structlog.get_logger()
T = TypeVar("T")

UNKNOWN_OUTCOME: Final = Refused("REQUEST_TIMED_OUT")
BURST: Final = 1000
EVENTS_PER_S: Final = 100
"""Events that are written at once, and from then on; others are counted."""
MAX_PARTS: Final = 100
"""Of one change that are written; a reader is told how many there were."""
SIGNS: Final[Mapping[ConfigOp, str]] = {ConfigOp.SET: "=", ConfigOp.APPEND: "+=", ConfigOp.SUBTRACT: "-="}


class _Allowance:
    """Bounds the trace: strangers may ask for changes faster than a log should grow."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = time.monotonic()
        self._left_out = 0

    def take(self) -> bool:
        """Whether one more event may be written; says how many were left out before it."""
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._at) * EVENTS_PER_S)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        if self._left_out:
            log.warning("audit.left_out", events=self._left_out)
            self._left_out = 0
        return True


_allowance = _Allowance()


def audit(context: RequestContext, event: str, refused: Refused | None = None, **changed: object) -> None:
    """Write what was changed, unless it was refused for certain."""
    if refused is not None:
        if refused.error != UNKNOWN_OUTCOME.error:
            return
        changed["outcome"] = "unknown"
    if not _allowance.take():
        return
    log.info(
        event,
        **changed,
        principal=context.principal,
        client_id=context.client_id,
        peer=context.peer_host,
    )


async def audited(context: RequestContext, change: Awaitable[T], event: str, **changed: object) -> T:
    """The result of a change, which is written unless the result is a refusal. A client that hangs up in
    the meantime leaves a trace too."""
    try:
        result = await change
    except asyncio.CancelledError:
        audit(context, event, UNKNOWN_OUTCOME, **changed)
        raise
    audit(context, event, result if isinstance(result, Refused) else None, **changed)
    return result


def new_topic_fields(topic: NewTopic) -> dict[str, object]:
    """What is written of a topic that is created."""
    configs = in_words(topic.configs.items(), "=".join)
    return {"topic": topic.name, "partitions": topic.partitions, "configs": configs}


def audit_configs(context: RequestContext, resource: ResourceEdit, refused: Refused | None) -> None:
    """Configs of a topic, a broker (all of them: "") or a group."""
    if not resource.edits and not resource.is_whole:
        return
    audit(
        context,
        "configs.altered",
        refused,
        resource=ResourceType(resource.type).name.lower(),
        name=resource.name,
        changes=in_words(resource.edits, _config_change),
        others="to their defaults" if resource.is_whole else "kept",
    )


def audit_quota(
    context: RequestContext, entity: QuotaEntity, changes: Mapping[str, float | None], refused: Refused | None
) -> None:
    if not changes:
        return
    audit(
        context,
        "quota.altered",
        refused,
        entity=in_words(entity, _part_of_entity),
        changes=in_words(changes.items(), _quota_change),
    )


def in_words(parts: Collection[T], say: Callable[[T], str]) -> str:
    """The first of them, and how many more there are."""
    shown = ", ".join(map(say, islice(parts, MAX_PARTS)))
    return shown if len(parts) <= MAX_PARTS else f"{shown} and {len(parts) - MAX_PARTS} more"


def _config_change(edit: ConfigEdit) -> str:
    sign = SIGNS.get(OPERATIONS.get(edit.operation, ConfigOp.SET))
    return f"{edit.name} removed" if sign is None else f"{edit.name}{sign}{edit.value or ''}"


def _part_of_entity(part: tuple[str, str | None]) -> str:
    kind, name = part
    return f"{kind}={'<default>' if name is None else name}"


def _quota_change(change: tuple[str, float | None]) -> str:
    key, value = change
    return f"{key} removed" if value is None else f"{key}={value:g}"
