"""AdoptTopic (20007), v0.

Begin or end the adoption of a topic from a bucket in KafScale's layout. What the errors mean says
`ledger.adoption.requests.AdoptTopic`; REQUEST_TIMED_OUT: the outcome is unknown, and the same request is sent
again.
"""

from gateway.internal.shard_access import ShardAccess
from gateway.requests.audit import audited
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.adopt_topic import AdoptTopicRequest, AdoptTopicResponse
from ledger.adoption.requests import Adopting, AdoptStep, AdoptTopic
from ledger.errors import ErrorName
from ledger.requests import LedgerResult, Refused
from ledger.types import TopicId


async def handle(
    access: ShardAccess, context: RequestContext, request: AdoptTopicRequest
) -> AdoptTopicResponse:
    if request.step not in set(map(int, AdoptStep)):
        return AdoptTopicResponse(error_code=ERROR_CODES[ErrorName.INVALID_REQUEST], error_message="no step")
    step, topic_id = AdoptStep(request.step), TopicId(request.topic_id)
    adopt = AdoptTopic(request.name, topic_id, request.partitions, request.place, request.digest, step)
    submitted = access.submit(adopt, context.deadline(request.timeout_ms))
    if step is AdoptStep.CHECK:
        return _response(await submitted)
    event = "adoption.ended" if step is AdoptStep.END else "adoption.begun"
    return _response(await audited(context, submitted, event, topic=request.name, place=request.place))


def _response(result: LedgerResult) -> AdoptTopicResponse:
    if isinstance(result, Refused):
        return AdoptTopicResponse(error_code=ERROR_CODES[result.error], error_message=result.message or None)
    assert isinstance(result, Adopting), result
    return AdoptTopicResponse(topic_id=result.topic_id, is_open=result.is_open, has_ended=result.has_ended)
