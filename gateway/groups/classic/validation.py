"""Why a request of a member is refused, in the order of Kafka's checks. Nothing changes here.

Each function returns an error's name, or None.
"""

from gateway.groups.classic.members import MEMBER_BYTES, Roster, protocols_size
from gateway.groups.classic.rebalance import Rebalance
from gateway.groups.classic.states import State
from gateway.groups.messages import Join, Sync
from ledger.errors import ErrorName
from ledger.requests import text_bytes


def validate_member(roster: Roster, member_id: str, instance_id: str | None) -> ErrorName | None:
    if instance_id is not None:
        current = roster.by_instance.get(instance_id)
        if current is None:
            return ErrorName.UNKNOWN_MEMBER_ID
        if current.member_id != member_id:
            return ErrorName.FENCED_INSTANCE_ID
    return None if member_id in roster.by_id else ErrorName.UNKNOWN_MEMBER_ID


def validate_join(rebalance: Rebalance, roster: Roster, request: Join) -> ErrorName | None:
    if rebalance.state is State.DEAD:
        return ErrorName.COORDINATOR_NOT_AVAILABLE
    if not accepts_joining_member(rebalance, roster, request):
        return ErrorName.GROUP_MAX_SIZE_REACHED
    if not _supports_protocols(rebalance, roster, request):
        return ErrorName.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id in roster.pending:
        if request.instance_id is not None:
            # The id was given to a dynamic member. Kafka runs into an exception, and returns this error.
            return ErrorName.UNKNOWN_SERVER_ERROR
    elif request.member_id:
        error = validate_member(roster, request.member_id, request.instance_id)
        if error is not None:
            return error
    # A group too large to be stored would be lost for all its members.
    growth = join_growth(roster, request)
    is_too_large = growth > 0 and roster.bytes + growth > rebalance.config.max_bytes
    return ErrorName.GROUP_MAX_SIZE_REACHED if is_too_large else None


def accepts_joining_member(rebalance: Rebalance, roster: Roster, request: Join) -> bool:
    max_size = rebalance.config.max_size
    if gets_id_only(request) and len(roster.pending) >= max_size:
        # Kafka counts no pending members; here they have a bound.
        return False
    member = roster.by_id.get(request.member_id)
    match rebalance.state:
        case State.EMPTY:
            return True
        case State.PREPARING_REBALANCE:
            # Members that wait count, not all members: when the bound has shrunk, the last to join must go.
            is_waiting = member is not None and member.joining is not None
            return is_waiting or roster.joining < max_size
        case _:
            return member is not None or len(roster) < max_size


def gets_id_only(request: Join) -> bool:
    """Whether it is the first join of a dynamic member, which receives an id and joins again with that."""
    return not request.member_id and request.instance_id is None and request.needs_member_id


def join_growth(roster: Roster, request: Join) -> int:
    """By how many bytes the group grows when this member joins."""
    current = roster.by_id.get(request.member_id)
    if current is None and request.instance_id is not None:
        current = roster.by_instance.get(request.instance_id)
    grown = protocols_size(request.protocols)
    if current is not None:
        return grown - protocols_size(current.protocols)
    member_id = request.member_id or request.new_member_id
    names = (member_id, request.instance_id or "", request.client_id, request.client_host)
    return grown + MEMBER_BYTES + sum(map(text_bytes, names))


def validate_sync(rebalance: Rebalance, roster: Roster, request: Sync) -> ErrorName | None:
    error = validate_member(roster, request.member_id, request.instance_id)
    if error is not None:
        return error
    if request.generation != rebalance.generation:
        return ErrorName.ILLEGAL_GENERATION
    has_same_type = request.protocol_type in (None, rebalance.protocol_type)
    if not has_same_type or request.protocol not in (None, rebalance.protocol):
        return ErrorName.INCONSISTENT_GROUP_PROTOCOL
    return ErrorName.REBALANCE_IN_PROGRESS if rebalance.state is State.PREPARING_REBALANCE else None


def validate_offset_commit(
    rebalance: Rebalance,
    roster: Roster,
    member_id: str,
    instance_id: str | None,
    generation: int,
    in_transaction: bool,
) -> ErrorName | None:
    """A generation below 0 is a simple commit, which only an empty group takes. In a transaction any group
    takes one: producers that are older than KIP-447 name no member."""
    if rebalance.state is State.DEAD:
        return ErrorName.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and rebalance.state is State.EMPTY:
        return None
    if generation < 0 and not member_id and instance_id is None:
        return None if in_transaction else ErrorName.UNKNOWN_MEMBER_ID
    error = validate_member(roster, member_id, instance_id)
    if error is not None:
        return error
    if generation != rebalance.generation:
        return ErrorName.ILLEGAL_GENERATION
    # A member in this state knows the generation but not yet its assignment.
    is_early = rebalance.state is State.COMPLETING_REBALANCE and not in_transaction
    return ErrorName.REBALANCE_IN_PROGRESS if is_early else None


def _supports_protocols(rebalance: Rebalance, roster: Roster, request: Join) -> bool:
    if rebalance.state is State.EMPTY:
        return bool(request.protocol_type and request.protocols)
    return request.protocol_type == rebalance.protocol_type and roster.supports(request.protocols)
