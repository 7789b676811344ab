"""Deciding what concerns groups and their offsets.

The overlay is looked at first, the durable state second: what an entry has decided so far must hold for the
later requests of the same entry.
"""

from collections.abc import Iterator, Sequence

from ledger.errors import ErrorName
from ledger.groups.records import (
    GROUP_STORED,
    MAX_GROUP_BYTES,
    MAX_METADATA_BYTES,
    OFFSET_KEY,
    GroupRemoved,
    GroupStored,
    OffsetsCommitted,
    OffsetsRemoved,
    encoded_group,
)
from ledger.groups.requests import (
    MAX_OFFSETS,
    CommitOffsets,
    DrainOffsets,
    GroupGone,
    OffsetsStored,
    RemoveGroup,
    RemoveOffsets,
    StoreGroup,
)
from ledger.groups.state import MAX_GROUP_ID_BYTES, Group, OffsetKey, OffsetRow
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.records import FRAME, MAX_RECORDS_BYTES, MetadataRecord
from ledger.requests import Done, Refused
from ledger.state import LedgerState
from ledger.transactions.state import Transactions, TransactionsOfEntry

_TOO_LARGE = ErrorName.UNKNOWN_SERVER_ERROR
_NO_PARTITION = Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
_METADATA_TOO_LARGE = Refused(ErrorName.OFFSET_METADATA_TOO_LARGE)


def store_group(state: LedgerState, overlay: Overlay, request: StoreGroup, now_ms: int) -> Decision:
    group = request.group
    if not _legal_id(group.group_id):
        return Decision(Refused(ErrorName.INVALID_GROUP_ID))
    record, encoded = GroupStored(group), request.encoded
    # Weighed first: what is small for certain is encoded once all are decided.
    if encoded is not None or request.weight > MAX_GROUP_BYTES // 4:
        record, size = encoded or encoded_group(group)
        if size > MAX_GROUP_BYTES or len(GROUP_STORED.framed(record)) > MAX_RECORDS_BYTES:
            return Decision(
                Refused(_TOO_LARGE, f"the group has {size} bytes, more than a journal entry holds")
            )
    overlay.groups[group.group_id] = group
    return Decision(Done(1), (record,))


def _legal_id(group_id: str) -> bool:
    if len(group_id) > MAX_GROUP_ID_BYTES:
        return False
    return group_id.isascii() or len(group_id.encode()) <= MAX_GROUP_ID_BYTES


def commit_offsets(state: LedgerState, overlay: Overlay, request: CommitOffsets, now_ms: int) -> Decision:
    if not _legal_id(request.group_id):
        return Decision(Refused(ErrorName.INVALID_GROUP_ID))
    if len(request.rows) > MAX_OFFSETS or request.weight > MAX_RECORDS_BYTES:
        return Decision(
            Refused(_TOO_LARGE, f"more than {MAX_OFFSETS} offsets, or too long metadata, at once")
        )
    results = [check_offset(state, overlay, row) for row in request.rows]
    stored = request.rows
    if any(results):
        stored = [row for row, result in zip(request.rows, results, strict=True) if result is None]
    if not stored:
        return Decision(OffsetsStored(results))
    changed = overlay.offsets.setdefault(request.group_id, {})
    for row in stored:
        changed[row.topic_id, row.partition] = now_ms
    return Decision(OffsetsStored(results), (OffsetsCommitted(request.group_id, stored),))


def check_offset(state: LedgerState, overlay: Overlay, row: OffsetRow) -> Refused | None:
    """Why this offset cannot be committed; None if it can."""
    topic = state.topics.by_id.get(row.topic_id)
    if topic is None or row.topic_id in overlay.deleted:
        return _NO_PARTITION
    if not 0 <= row.partition < len(topic.partitions.made):
        return _NO_PARTITION
    if row.metadata and len(row.metadata.encode()) > MAX_METADATA_BYTES:
        return _METADATA_TOO_LARGE
    return None


def remove_offsets(state: LedgerState, overlay: Overlay, request: RemoveOffsets, now_ms: int) -> Decision:
    if len(request.keys) > MAX_OFFSETS:
        return Decision(Refused(_TOO_LARGE, f"more than {MAX_OFFSETS} offsets at once"))
    bound = request.committed_before_ms
    going: dict[OffsetKey, None] = {}
    for key in request.keys:
        committed_ms = _committed_ms(state, overlay, request.group_id, key)
        is_pending = _is_pending(state, overlay, request.group_id, key)
        if bound is None:
            is_going = is_pending or committed_ms is not None
        else:
            is_going = not is_pending and committed_ms is not None and committed_ms < bound
        if is_going:
            going[key] = None
    return Decision(Done(len(going)), _removed(overlay, request.group_id, list(going)))


def _committed_ms(state: LedgerState, overlay: Overlay, group_id: str, key: OffsetKey) -> int | None:
    """When an offset was committed; None if there is none."""
    changed = overlay.offsets.get(group_id)
    if changed is not None and key in changed:
        return changed[key]
    held = state.groups.offsets.get(group_id)
    committed = held.get(key) if held is not None else None
    return committed.committed_ms if committed is not None else None


def _removed(overlay: Overlay, group_id: str, keys: Sequence[OffsetKey]) -> Sequence[MetadataRecord]:
    if not keys:
        return ()
    changed = overlay.offsets.setdefault(group_id, {})
    changed.update(dict.fromkeys(keys))
    return (OffsetsRemoved(group_id, keys),)


def remove_group(state: LedgerState, overlay: Overlay, request: RemoveGroup, now_ms: int) -> Decision:
    group_id = request.group_id
    group = _group(state, overlay, group_id)
    if group is not None and group.members:
        return Decision(Refused(ErrorName.NON_EMPTY_GROUP))
    total = _offset_count(state, overlay, group_id)
    is_pending = _is_pending(state, overlay, group_id)
    if not request.limit and is_pending:
        return Decision(GroupGone(total + 1))
    if group is None and not total and not is_pending:
        return Decision(Refused(ErrorName.GROUP_ID_NOT_FOUND))
    limit = max(0, min(request.limit, MAX_OFFSETS))
    going: list[OffsetKey] = []
    for key in _live_keys(state, overlay, group_id):
        if len(going) == limit:
            break
        going.append(key)
    records = list(_removed(overlay, group_id, going))
    if len(going) == total:
        overlay.groups[group_id] = None
        records.append(GroupRemoved(group_id))
    return Decision(GroupGone(total - len(going)), records)


def _is_pending(state: LedgerState, overlay: Overlay, group_id: str, key: OffsetKey | None = None) -> bool:
    """Whether a transaction is going to commit offsets of the group, or the one of this key; perhaps, if the
    entry has some of the group."""
    entry = overlay.part(TransactionsOfEntry)
    return group_id in entry.pending_groups or state.part(Transactions).is_waiting(group_id, key)


def _group(state: LedgerState, overlay: Overlay, group_id: str) -> Group | None:
    if group_id in overlay.groups:
        return overlay.groups[group_id]
    return state.groups.by_id.get(group_id)


def _offset_count(state: LedgerState, overlay: Overlay, group_id: str) -> int:
    held = state.groups.offsets.get(group_id, {})
    total = len(held)
    for key, committed_ms in overlay.offsets.get(group_id, {}).items():
        total += (committed_ms is not None) - (key in held)
    return total


def _live_keys(state: LedgerState, overlay: Overlay, group_id: str) -> Iterator[OffsetKey]:
    changed = overlay.offsets.get(group_id, {})
    for key in state.groups.offsets.get(group_id, ()):
        if key not in changed:
            yield key
    for key, committed_ms in list(changed.items()):
        if committed_ms is not None:
            yield key


def drain_offsets(state: LedgerState, overlay: Overlay, request: DrainOffsets, now_ms: int) -> Decision:
    going: dict[str, list[OffsetKey]] = {}
    left = request.weight
    count = 0
    for group_id, key in state.groups.dead_offsets():
        if count == request.limit or count == MAX_OFFSETS:
            break
        if _committed_ms(state, overlay, group_id, key) is None:
            continue  # taken out by another request of this entry
        cost = OFFSET_KEY.size
        if group_id not in going:
            cost += FRAME.size + 4 + len(group_id.encode())
        if cost > left:
            break
        left -= cost
        going.setdefault(group_id, []).append(key)
        count += 1
    records = [record for group_id, keys in going.items() for record in _removed(overlay, group_id, keys)]
    return Decision(Done(count), records)
