"""AlterClientQuotas, versions 0-1 (KIP-546): one answer for each entity."""

from collections.abc import Sequence

from gateway.context import RequestContext
from gateway.handlers.auditing import audit_quota
from gateway.quotas.altering import CheckedEdit, QuotaEdit, checking_edits, entity_of
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from ledger.errors import StoreError
from ledger.requests import Refused

TIMED_OUT = Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")


async def handle(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    slices = context.slices
    given = [_edit(entry) async for entry in slices.paced(request.entries)]
    edits = await slices.drive(checking_edits(given))
    answers: Sequence[Refused | None] = [edit.refused for edit in edits]
    if not request.validate_only:
        answers = await _altered(context, edits)
    return AlterClientQuotasResponse(
        entries=[
            _result(edit, answer) async for edit, answer in slices.paced(zip(edits, answers, strict=True))
        ]
    )


async def _altered(context: RequestContext, edits: Sequence[CheckedEdit]) -> Sequence[Refused | None]:
    # Until they are answered, the outcome is not known: the client may hang up.
    answers: Sequence[Refused | None] = [TIMED_OUT] * len(edits)
    try:
        answers = await context.services.quotas.alter(edits, context.journal_deadline())
    except TimeoutError:
        pass
    except StoreError as error:
        answers = [Refused("KAFKA_STORAGE_ERROR", str(error))] * len(edits)
    finally:
        for edit, answer in zip(edits, answers, strict=True):
            # What was refused as given twice has the changes of its first entry.
            audit_quota(context, edit.entity, edit.changes, None if answer is edit.refused else answer)
    return answers


def _edit(entry: AlterClientQuotasRequestEntryData) -> QuotaEdit:
    entity = entity_of([(part.entity_type, part.entity_name) for part in entry.entity])
    return QuotaEdit(entity, [(op.key, None if op.remove else op.value) for op in entry.ops])


def _result(edit: CheckedEdit, refused: Refused | None) -> AlterClientQuotasResponseEntryData:
    entity = [AlterClientQuotasResponseEntityData(kind, name) for kind, name in edit.entity]
    if refused is None:
        return AlterClientQuotasResponseEntryData(ErrorCode.NONE, None, entity)
    return AlterClientQuotasResponseEntryData(ErrorCode[refused.error], refused.message or None, entity)
