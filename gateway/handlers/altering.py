"""What AlterConfigs and IncrementalAlterConfigs have in common: one answer for each resource, in order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from gateway.context import RequestContext
from gateway.handlers.auditing import audit_configs
from gateway.requests.slicing import AT_ONCE
from gateway.topics.altering import ResourceEdit, ResourceType, check_edits, check_resource
from ledger.requests import Refused

NO_TIME: Final = Refused("REQUEST_TIMED_OUT", "The request gives no time for the change.")
"""For a timeout of 0 or less: Kafka's controller then does nothing."""
Config = TypeVar("Config")

MAX_EDITS: Final = 1_000
UNITS_A_RESOURCE: Final = 5
TIMED_OUT: Final = Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")


async def alter_resources(
    context: RequestContext, resources: Sequence[ResourceEdit], validate_only: bool
) -> list[Refused | None]:
    """None for a resource that was changed, or that could be if only checking was asked for."""
    room, deadline = context.services.topics, context.journal_deadline()
    slices = context.slices
    times = Counter([(resource.type, resource.name) async for resource in slices.paced(resources)])
    refused = [
        _check(resource, times[resource.type, resource.name], context.services.node_id)
        async for resource in slices.paced(resources)
    ]
    passed = [i for i, one in enumerate(refused) if one is None]
    due = [i for i in passed if resources[i].type == ResourceType.TOPIC]
    may_deny = await room.prove_unknown([resources[i].name for i in due], deadline, slices)
    # Until they are answered, their outcome is not known: the client may hang up.
    answered: list[Refused | None] = [TIMED_OUT] * len(resources)
    try:
        async for part in slices.paced(_parts(due), AT_ONCE * UNITS_A_RESOURCE):
            answers = await room.alter([resources[i] for i in part], validate_only, deadline)
            for i, answer in zip(part, answers, strict=True):
                denied = answer is not None and answer.error == "UNKNOWN_TOPIC_OR_PARTITION"
                refused[i] = TIMED_OUT if denied and not may_deny else answer
                answered[i] = answer
        others = [i for i in passed if resources[i].type != ResourceType.TOPIC]
        async for part in slices.paced(_parts(others), AT_ONCE * UNITS_A_RESOURCE):
            changes = context.services.configs.alter([resources[i] for i in part], validate_only, deadline)
            for i, answer in zip(part, await changes, strict=True):
                refused[i] = answered[i] = answer
    except BaseException:
        if not validate_only:
            for i in passed:
                audit_configs(context, resources[i], answered[i])
        raise
    if not validate_only:
        async for i in slices.paced(passed):
            audit_configs(context, resources[i], answered[i])
    return refused


def first_edits(configs: Sequence[Config]) -> Sequence[Config]:
    """Those of a resource that are looked at: one more than it may have, if there are more."""
    return configs[: MAX_EDITS + 1]


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), AT_ONCE):
        yield numbers[start : start + AT_ONCE]


def _check(resource: ResourceEdit, times: int, node_id: int) -> Refused | None:
    if len(resource.edits) > MAX_EDITS:
        return Refused("INVALID_REQUEST", f"There are not so many configs; {MAX_EDITS} may be given at once.")
    if times > 1:
        return Refused("INVALID_REQUEST", "Each resource may be given once.")
    return check_edits(resource) or check_resource(resource, node_id)
