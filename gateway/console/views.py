"""What the console shows, as JSON values: one function for each kind of thing."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.console.forms import shown
from gateway.console.messages import Found
from gateway.console.positions import header_fields
from gateway.console.record_scan import FoundRecord
from gateway.console.resets import Preview
from gateway.console.tables import GroupRow, TopicRow, TransactionRow, lag_of
from gateway.groups.describe import GroupDescription
from ledger.errors import ErrorName
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.topics.state import Topic

Json = dict[str, Any]
MAX_MEMBERS: Final = 500
"""Of a group, that are listed."""
MAX_TEXT: Final = 500


def topic_row(row: TopicRow) -> Json:
    return {
        "name": row.name,
        "partitions": row.partitions,
        "records": row.records,
        "bytes": row.size_bytes,
        "rate": None if row.rate is None else round(row.rate, 2),
    }


def group_row(row: GroupRow) -> Json:
    return {
        "name": row.name,
        "state": row.state,
        "protocolType": row.protocol_type,
        "members": row.members,
        "topics": row.topics,
        "lag": row.lag,
    }


def transaction_row(row: TransactionRow) -> Json:
    return {
        "name": row.name,
        "state": row.state,
        "producerId": row.producer_id,
        "partitions": row.partitions,
        "groups": row.groups,
        "timeout": row.timeout_ms,
        "open": row.open_ms,
    }


def topic_page(topic: Topic, first: int, rows: int) -> Json:
    """A topic with some of its partitions."""
    made = topic.partitions.made
    return {
        "name": topic.name,
        "id": topic.topic_id.hex(),
        "created": topic.created_ms,
        "configs": dict(sorted(topic.configs.items())),
        "count": len(made),
        "first": first,
        "partitions": [partition_row(first + at, log) for at, log in enumerate(made[first : first + rows])],
    }


def partition_row(index: int, log: PartitionLog | None) -> Json:
    if log is None:
        return {"partition": index, "start": 0, "end": 0, "bytes": 0, "runs": 0, "layoutVersion": 0}
    return {
        "partition": index,
        "start": log.log_start,
        "end": log.high_watermark,
        "bytes": log.size_bytes,
        "runs": log.run_count,
        "layoutVersion": log.layout_version,
    }


def record(partition: int, found: FoundRecord) -> Json:
    batch = header_fields(found.batch)
    return {
        "partition": partition,
        "offset": found.offset,
        "timestamp": found.timestamp_ms if found.timestamp_ms >= 0 else None,
        "key": shown(found.key),
        "value": shown(found.value),
        "headers": [{"name": name, "value": shown(value)} for name, value in found.headers],
        "batch": {
            "base": found.batch.base_offset,
            "size": found.batch.size_bytes,
            **{name: batch[name] for name in ("records", "codec", "timestampType", "isControl")},
            **{name: batch[name] for name in ("producerId", "producerEpoch", "baseSequence")},
        },
    }


def messages(found: Found) -> Json:
    return {
        "records": [record(partition, one) for partition, one in found.records],
        "unreadable": [
            {"partition": partition, "offset": offset, "reason": reason[:MAX_TEXT]}
            for partition, offset, reason in found.unreadable
        ],
        "next": {str(index): offset for index, offset in found.positions.items()},
        "scanned": found.scanned,
        "isComplete": found.is_complete,
    }


def members(group: GroupDescription) -> list[Json]:
    return [
        {
            "memberId": member.member_id,
            "instanceId": member.instance_id,
            "clientId": member.client_id,
            "host": member.client_host,
        }
        for member in group.members[:MAX_MEMBERS]
    ]


def offset_row(state: LedgerState, key: OffsetKey, committed: CommittedOffset) -> Json:
    topic = state.topics.by_id.get(key[0])
    index = key[1]
    log = None
    if topic is not None and index < len(topic.partitions.made):
        log = topic.partitions.made[index]
    return {
        "topic": None if topic is None else topic.name,
        "partition": index,
        "offset": committed.offset,
        "end": None if topic is None else 0 if log is None else log.high_watermark,
        "lag": lag_of(state, key, committed),
        "committed": committed.committed_ms,
        "metadata": committed.metadata[:MAX_TEXT],
    }


def preview(made: Preview, errors: Sequence[ErrorName] | None = None) -> Json:
    rows: list[Json] = [
        {
            "topic": row.topic.name,
            "partition": row.partition,
            "before": row.before,
            "after": row.after,
            "end": row.end,
        }
        for row in made.rows
    ]
    if errors is not None:
        for row, error in zip(rows, errors, strict=True):
            row["error"] = None if error == ErrorName.NONE else error
    return {"preview": made.preview_id, "group": made.group_id, "rows": rows}


def warnings(all_of: Sequence[Mapping[str, str]]) -> list[Json]:
    return [{"reason": one.get("reason", ""), "detail": one.get("detail", "")} for one in all_of[:20]]
