"""What AlterConfigs and IncrementalAlterConfigs have in common: one answer for each resource, in order."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.handlers.auditing import audit_configs
from gateway.topics.altering import ResourceEdit, ResourceType, check_edits, check_resource
from ledger.requests import Refused

NO_TIME: Final = Refused("REQUEST_TIMED_OUT", "The request gives no time for the change.")
"""For a timeout of 0 or less: Kafka's controller then does nothing."""
TIMED_OUT: Final = Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")


async def alter_resources(
    context: RequestContext, resources: Sequence[ResourceEdit], validate_only: bool
) -> list[Refused | None]:
    """None for a resource that was changed, or that could be if only checking was asked for."""
    room, deadline = context.services.topics, context.journal_deadline()
    times = Counter((resource.type, resource.name) for resource in resources)
    refused = [
        _check(resource, times[resource.type, resource.name], context.services.node_id)
        for resource in resources
    ]
    passed = [i for i, one in enumerate(refused) if one is None]
    due = [i for i in passed if resources[i].type == ResourceType.TOPIC]
    may_deny = await room.prove_unknown([resources[i].name for i in due], deadline)
    # Until they are answered, their outcome is not known: the client may hang up.
    answered: list[Refused | None] = [TIMED_OUT] * len(resources)
    try:
        for i, answer in zip(
            due, await room.alter([resources[i] for i in due], validate_only, deadline), strict=True
        ):
            denied = answer is not None and answer.error == "UNKNOWN_TOPIC_OR_PARTITION"
            refused[i] = TIMED_OUT if denied and not may_deny else answer
            answered[i] = answer
        others = [i for i in passed if resources[i].type != ResourceType.TOPIC]
        if others:
            changes = context.services.configs.alter([resources[i] for i in others], validate_only, deadline)
            for i, answer in zip(others, await changes, strict=True):
                refused[i] = answered[i] = answer
    finally:
        if not validate_only:
            for i in passed:
                audit_configs(context, resources[i], answered[i])
    return refused


def _check(resource: ResourceEdit, times: int, node_id: int) -> Refused | None:
    if times > 1:
        return Refused("INVALID_REQUEST", "Each resource may be given once.")
    return check_edits(resource) or check_resource(resource, node_id)
