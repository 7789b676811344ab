"""The audit log: one event at level info for each durable change that a client requests.

Changes that are refused or only validated have no event. If the journal did not respond in time, the change
may have been made: then the event has outcome="unknown". What a client is not allowed to do has an event of
another kind, `request.denied`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import structlog

from gateway.configs.alter import OPERATIONS, ConfigEdit, ResourceEdit, ResourceType
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import Slices
from gateway.telemetry.logs import QuietLog
from gateway.topics.creation import NewTopic
from gateway.wire.apis import ApiKey, InternalApi
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settings.configs import ConfigOp
from ledger.settings.state import QuotaEntity

log = structlog.get_logger()
T = TypeVar("T")

UNKNOWN_OUTCOME: Final = Refused(ErrorName.REQUEST_TIMED_OUT)
BURST: Final = 1000
EVENTS_PER_S: Final = 100
"""Events that are written in a burst, and per second after it. Further ones are only counted."""
DENIED_QUIET_S: Final = 60.0
"""Between two events of denied requests of one principal with the same API and error. The next one has the
number of those left out."""
MAX_PARTS: Final = 100
"""Parts of one change that an event lists. Further ones are given as a number."""
SIGNS: Final[Mapping[ConfigOp, str]] = {ConfigOp.SET: "=", ConfigOp.APPEND: "+=", ConfigOp.SUBTRACT: "-="}


class _RateLimit:
    """Bounds the audit log: clients may request changes faster than a log should grow."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = time.monotonic()
        self._omitted = 0

    def take(self) -> bool:
        """Whether one more event may be written. If so, logs the number of events omitted before it."""
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._at) * EVENTS_PER_S)
        self._at = now
        if self._left < 1:
            self._omitted += 1
            return False
        self._left -= 1
        self._log_omitted()
        return True

    def omit(self, events: int) -> None:
        """Count events that are omitted without a call of `take`."""
        self._omitted += events

    def _log_omitted(self) -> None:
        if self._omitted:
            log.warning("audit.left_out", events=self._omitted)
            self._omitted = 0


_rate_limit = _RateLimit()
denied_log = QuietLog(DENIED_QUIET_S, keyed_by=("api", "error", "principal"))


def audit(context: RequestContext, event: str, refused: Refused | None = None, **changed: object) -> None:
    """Write the event of a change, unless the change was certainly refused."""
    if refused is not None:
        if refused.error != UNKNOWN_OUTCOME.error:
            return
        changed["outcome"] = "unknown"
    if not _rate_limit.take():
        return
    log.info(
        event,
        **changed,
        principal=context.principal,
        client_id=context.client_id,
        peer=context.peer_host,
    )


def denied(context: RequestContext, error: str, reason: str, resource: str = "") -> None:
    """Count a request that its client is not allowed to make, or a part of one, and write its event. `error`
    is Kafka's name of it."""
    api = _api_name(context.header.api_key)
    context.services.metrics.denied.labels(api, error).inc()
    denied_log.warning(
        "request.denied",
        api=api,
        error=error,
        resource=resource,
        reason=reason,
        principal=context.principal,
        client_id=context.client_id,
        peer=context.peer_host,
    )


def _api_name(key: int) -> str:
    # The two have no key in common that is served.
    is_internal = key in InternalApi.__members__.values()
    return InternalApi(key).name if is_internal else ApiKey(key).name


async def audited(context: RequestContext, change: Awaitable[T], event: str, **changed: object) -> T:
    """Await a change, and write its event unless the result is a refusal. If the client hangs up meanwhile,
    the event has an unknown outcome."""
    try:
        result = await change
    except asyncio.CancelledError:
        audit(context, event, UNKNOWN_OUTCOME, **changed)
        raise
    audit(context, event, result if isinstance(result, Refused) else None, **changed)
    return result


async def audit_each(slices: Slices, changes: Sequence[T], write: Callable[[T], None]) -> None:
    """Write one event for each change, in slices. If the client hangs up meanwhile, the rest is written at
    once."""
    written = 0
    try:
        async for change in slices.paced(changes):
            written += 1
            write(change)
    except asyncio.CancelledError:
        audit_at_once(changes[written:], write)
        raise


def audit_at_once(changes: Sequence[T], write: Callable[[T], None]) -> None:
    """The same without waiting, for at most BURST events."""
    for change in changes[:BURST]:
        write(change)
    _rate_limit.omit(len(changes[BURST:]))


def new_topic_fields(topic: NewTopic) -> dict[str, object]:
    """Fields of the event of a created topic."""
    configs = in_words(topic.configs.items(), "=".join)
    return {"topic": topic.name, "partitions": topic.partitions, "configs": configs}


def audit_configs(context: RequestContext, resource: ResourceEdit, refused: Refused | None) -> None:
    """Write the event of changed configs of a topic, a broker (all brokers: "") or a group."""
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


def in_words(parts: Collection[T], describe: Callable[[T], str]) -> str:
    """A list of the first parts, and the number of further ones."""
    shown = ", ".join(map(describe, islice(parts, MAX_PARTS)))
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
