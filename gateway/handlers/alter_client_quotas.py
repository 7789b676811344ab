"""AlterClientQuotas (49), v0-1.

KIP-546; one result for each entity. v1: flexible.
"""

from collections.abc import Sequence

from gateway.quotas.alter import CheckedEdit, QuotaEdit, checking_edits, entity_of
from gateway.requests.audit import audit_at_once, audit_each, audit_quota
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import Slices
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from ledger.errors import ErrorName, StoreError
from ledger.requests import Refused

_Outcome = tuple[CheckedEdit, Refused | None]
TIMED_OUT = Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")


async def handle(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    slices = context.slices
    requested = slices.keep([await _edit(entry, slices) async for entry in slices.paced(request.entries)])
    edits = slices.keep(await slices.drive(checking_edits(requested)))
    results: Sequence[Refused | None] = [edit.refused for edit in edits]
    if not request.validate_only:
        results = await _alter(context, edits)
    return AlterClientQuotasResponse(
        entries=[
            await _result(edit, refused, slices)
            async for edit, refused in slices.paced(zip(edits, results, strict=True))
        ]
    )


async def _alter(context: RequestContext, edits: Sequence[CheckedEdit]) -> Sequence[Refused | None]:
    def write(outcome: _Outcome) -> None:
        edit, refused = outcome
        # An entity that was refused as given twice has the changes of its first entry.
        audit_quota(context, edit.entity, edit.changes, None if refused is edit.refused else refused)

    results: Sequence[Refused | None]
    try:
        results = await context.services.quotas.alter(edits, context.journal_deadline())
    except TimeoutError:
        results = [TIMED_OUT] * len(edits)
    except StoreError as error:
        results = [Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error))] * len(edits)
    except BaseException:
        # The outcome is unknown: the client may have hung up.
        audit_at_once([(edit, TIMED_OUT) for edit in edits if edit.changes], write)
        raise
    outcomes = [
        (edit, refused)
        async for edit, refused in context.slices.paced(zip(edits, results, strict=True))
        if edit.changes
    ]
    await audit_each(context.slices, outcomes, write)
    return results


async def _edit(entry: AlterClientQuotasRequestEntryData, slices: Slices) -> QuotaEdit:
    parts = [(part.entity_type, part.entity_name) async for part in slices.paced(entry.entity)]
    ops = [(op.key, None if op.remove else op.value) async for op in slices.paced(entry.ops)]
    return QuotaEdit(entity_of(slices.keep(parts)), slices.keep(ops))


async def _result(
    edit: CheckedEdit, refused: Refused | None, slices: Slices
) -> AlterClientQuotasResponseEntryData:
    entity = [
        AlterClientQuotasResponseEntityData(kind, name) async for kind, name in slices.paced(edit.entity)
    ]
    if refused is None:
        return AlterClientQuotasResponseEntryData(ErrorCode.NONE, None, entity)
    return AlterClientQuotasResponseEntryData(ERROR_CODES[refused.error], refused.message or None, entity)
