"""Shared by AlterConfigs and IncrementalAlterConfigs: one result for each resource, in order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from gateway.configs.alter import ResourceEdit, ResourceType, check_edits, check_resource
from gateway.requests.audit import audit_at_once, audit_configs, audit_each
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import AT_ONCE
from ledger.errors import ErrorName
from ledger.requests import Refused

NO_TIME: Final = Refused(ErrorName.REQUEST_TIMED_OUT, "The request gives no time for the change.")
"""The result for a timeout of 0 or less, with which Kafka's controller changes nothing."""
Config = TypeVar("Config")

MAX_EDITS: Final = 1_000
UNITS_A_RESOURCE: Final = 5
TIMED_OUT: Final = Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")


async def alter_resources(
    context: RequestContext, resources: Sequence[ResourceEdit], validate_only: bool
) -> list[Refused | None]:
    """Results: None for a resource that was altered, or that could be, if the request only validates."""
    topics, deadline = context.services.topics, context.journal_deadline()
    slices = context.slices
    times = Counter([(resource.type, resource.name) async for resource in slices.paced(resources)])
    slices.keep(times)
    refused = [
        _check(resource, times[resource.type, resource.name], context.services.node_id)
        async for resource in slices.paced(resources)
    ]
    valid = [i async for i, one in slices.paced(enumerate(refused)) if one is None]
    # What is set already decides, too: so each is refused by the newest state alone.
    outdated = await topics.barrier(deadline) if valid else None
    if outdated is not None:
        return [one or outdated async for one in slices.paced(refused)]
    of_topics = [i async for i in slices.paced(valid) if resources[i].type == ResourceType.TOPIC]
    # Until there is a result, the outcome is unknown: the client may hang up.
    outcomes: list[Refused | None] = [TIMED_OUT] * len(resources)

    def write(i: int) -> None:
        audit_configs(context, resources[i], outcomes[i])

    slices.kept += refused, outcomes
    try:
        async for part in slices.paced(_parts(of_topics), AT_ONCE * UNITS_A_RESOURCE):
            results = await topics.alter([resources[i] for i in part], validate_only, deadline)
            for i, result in zip(part, results, strict=True):
                refused[i] = outcomes[i] = result
        not_of_topics = [i async for i in slices.paced(valid) if resources[i].type != ResourceType.TOPIC]
        async for part in slices.paced(_parts(not_of_topics), AT_ONCE * UNITS_A_RESOURCE):
            changes = context.services.configs.alter([resources[i] for i in part], validate_only, deadline)
            for i, result in zip(part, await changes, strict=True):
                refused[i] = outcomes[i] = result
    except BaseException:
        if not validate_only:
            audit_at_once(valid, write)
        raise
    if not validate_only:
        await audit_each(slices, valid, write)
    return refused


def first_edits(configs: Sequence[Config]) -> Sequence[Config]:
    """The configs that are checked: at most one more than a resource may have."""
    return configs[: MAX_EDITS + 1]


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), AT_ONCE):
        yield numbers[start : start + AT_ONCE]


def _check(resource: ResourceEdit, times: int, node_id: int) -> Refused | None:
    if len(resource.edits) > MAX_EDITS:
        return Refused(
            ErrorName.INVALID_REQUEST, f"There are fewer configs than that; {MAX_EDITS} may be given at once."
        )
    if times > 1:
        return Refused(ErrorName.INVALID_REQUEST, "Each resource may be given once.")
    return check_edits(resource) or check_resource(resource, node_id)
