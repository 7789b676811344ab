"""Responses as plain values, in which what each endpoint calls by its own name has a common one.

Only what the exchange knows is renamed: the id that *this* endpoint gave to topic `t` becomes `<id of t>`,
so a wrong id still shows. What may differ without being known is in `allowed_differences.toml`.
"""

import dataclasses
import enum
import re
from collections.abc import Iterator
from typing import Any, Final

from crc32c import crc32c

from gateway.handlers.api_versions import FEATURES
from gateway.router import HANDLERS
from gateway.wire.apis import ApiKey
from gateway.wire.primitives import ZERO_UUID
from ledger.batch.compression import decompress
from ledger.batch.header import CONTROL_BIT, CRC_COVERS_FROM, HEADER_BYTES, LOG_APPEND_TIME_BIT, read_header
from tests.differential.conversation import Answer, Conversation, NotAnswered

UNORDERED: Final = {
    (ApiKey.API_VERSIONS, "api_keys"): ("api_key",),
    (ApiKey.API_VERSIONS, "supported_features"): ("name",),
    (ApiKey.API_VERSIONS, "finalized_features"): ("name",),
    (ApiKey.METADATA, "topics"): ("name", "topic_id"),
    (ApiKey.METADATA, "partitions"): ("partition_index",),
    (ApiKey.CREATE_TOPICS, "topics"): ("name",),
    (ApiKey.CREATE_TOPICS, "configs"): ("name",),
    (ApiKey.DELETE_TOPICS, "responses"): ("name", "topic_id"),
    (ApiKey.DESCRIBE_CONFIGS, "configs"): ("name",),
    (ApiKey.PRODUCE, "responses"): ("name", "topic_id"),
    (ApiKey.PRODUCE, "partition_responses"): ("index",),
    (ApiKey.LIST_OFFSETS, "topics"): ("name",),
    (ApiKey.LIST_OFFSETS, "partitions"): ("partition_index",),
    (ApiKey.FETCH, "aborted_transactions"): ("producer_id", "first_offset"),
    (ApiKey.CREATE_PARTITIONS, "results"): ("name",),
    (ApiKey.DELETE_RECORDS, "topics"): ("name",),
    (ApiKey.DELETE_RECORDS, "partitions"): ("partition_index",),
    (ApiKey.DESCRIBE_LOG_DIRS, "topics"): ("name",),
    (ApiKey.DESCRIBE_LOG_DIRS, "partitions"): ("partition_index",),
    (ApiKey.LIST_CONFIG_RESOURCES, "config_resources"): ("resource_type", "resource_name"),
    (ApiKey.ELECT_LEADERS, "replica_election_results"): ("topic",),
    (ApiKey.ALTER_CLIENT_QUOTAS, "entries"): ("entity",),
    (ApiKey.ALTER_CLIENT_QUOTAS, "entity"): ("entity_type",),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "entries"): ("entity",),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "entity"): ("entity_type",),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "values"): ("key",),
    (ApiKey.JOIN_GROUP, "members"): ("member_id",),
    (ApiKey.DESCRIBE_GROUPS, "members"): ("member_id",),
    (ApiKey.LIST_GROUPS, "groups"): ("group_id",),
    (ApiKey.DELETE_GROUPS, "results"): ("group_id",),
    (ApiKey.OFFSET_FETCH, "topics"): ("name", "topic_id"),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "results_by_topic_v3_and_below"): ("name",),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "results_by_transaction"): ("transactional_id",),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "topic_results"): ("name",),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "results_by_partition"): ("partition_index",),
    (ApiKey.TXN_OFFSET_COMMIT, "topics"): ("name",),
    (ApiKey.DESCRIBE_TRANSACTIONS, "topics"): ("topic",),
    (ApiKey.DESCRIBE_TRANSACTIONS, "transaction_states"): ("transactional_id",),
    (ApiKey.LIST_TRANSACTIONS, "transaction_states"): ("transactional_id",),
    (ApiKey.DESCRIBE_PRODUCERS, "active_producers"): ("producer_id",),
    (ApiKey.WRITE_TXN_MARKERS, "markers"): ("producer_id",),
    (ApiKey.WRITE_TXN_MARKERS, "topics"): ("name",),
    (ApiKey.WRITE_TXN_MARKERS, "partitions"): ("partition_index",),
}
"""Lists that Kafka writes out of a hash table, and what they are sorted by."""

DYNAMIC_CONFIG: Final = "min.insync.replicas"
"""A dynamic default of the cluster in Kafka since KIP-966; here it is one of the software."""
MEMBER_IDS: Final = ("member_id", "leader")
_RANDOM: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
BATCH_PREFIX_BYTES: Final = 12
MAX_UNPACKED_BYTES: Final = 1 << 24
TOPIC, GROUP = 2, 32
"""As DescribeConfigs numbers resources."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
START_TIME: Final = "transaction_start_time_ms"
VOLUME_BYTES: Final = ("total_bytes", "usable_bytes")


def plain(response: Answer, conversation: Conversation) -> dict[str, Any]:  # noqa: C901 - one case a kind
    if isinstance(response, NotAnswered):
        return {"outcome": "closed" if response.is_closed else "no answer"}
    value = _plain(response.message, "", response.api, conversation)
    if response.api is ApiKey.METADATA:
        # Topics of other exchanges and suites are none of this one's.
        value["topics"] = [topic for topic in value["topics"] if _is_own(topic, conversation)]
    if response.api is ApiKey.LIST_CONFIG_RESOURCES:
        value["config_resources"] = [
            found for found in value["config_resources"] if _is_own_resource(found, conversation)
        ]
    if response.api is ApiKey.ELECT_LEADERS:
        value["replica_election_results"] = [
            found
            for found in value["replica_election_results"]
            if found["partition_result"] or found["topic"].startswith(conversation.prefix)
        ]
    if response.api is ApiKey.DESCRIBE_GROUPS:
        for group in value["groups"]:
            _forget_old_assignments(group)
    if response.api is ApiKey.LIST_GROUPS:
        value["groups"] = [found for found in value["groups"] if _is_own_group(found, conversation)]
    if response.api is ApiKey.LIST_TRANSACTIONS:
        value["transaction_states"] = [
            found
            for found in value["transaction_states"]
            if found["transactional_id"].startswith(conversation.prefix)
        ]
        value["unknown_state_filters"].sort()
    if response.api is ApiKey.DESCRIBE_TRANSACTIONS:
        for state in value["transaction_states"]:
            _describe_alike(state, conversation)
    if response.api is ApiKey.API_VERSIONS:
        # What is not built yet is not reported; what is reported is compared.
        value["api_keys"] = [row for row in value["api_keys"] if _is_served(row)]
        _leave_built_levels(value)
    if response.api is ApiKey.DESCRIBE_CONFIGS:
        for result in value["results"]:
            result["configs"] = [one for one in result["configs"] if _is_compared(result, one)]
    if response.api is ApiKey.CREATE_TOPICS:
        for topic in value["topics"]:
            topic["configs"] = [config for config in topic["configs"] if config["name"] != DYNAMIC_CONFIG]
    return {"outcome": f"answered in version {response.version}", **value}


def _is_compared(result: dict[str, Any], config: dict[str, Any]) -> bool:
    return not (result["resource_name"] == "" and config["name"] == DYNAMIC_CONFIG)


def _is_served(row: dict[str, Any]) -> bool:
    return row["api_key"] in HANDLERS


def _describe_alike(state: dict[str, Any], conversation: Conversation) -> None:
    """In Kafka the offsets of groups are a topic, and partitions come out of a hash table."""
    if state[START_TIME] >= conversation.started_ms:
        state[START_TIME] = "<now>"
    state["topics"] = [topic for topic in state["topics"] if topic["topic"] != OFFSETS_TOPIC]
    for topic in state["topics"]:
        topic["partitions"].sort()


def _leave_built_levels(value: dict[str, Any]) -> None:
    """The features of Kafka's response that are built here; further ones of a gateway's response stay."""
    for feature in value["supported_features"]:
        level = FEATURES.get(feature["name"], 0)
        if feature["min_version"] <= level <= feature["max_version"]:
            feature["min_version"] = feature["max_version"] = level
    for feature in value["finalized_features"]:
        level = FEATURES.get(feature["name"], 0)
        for bound in ("min_version_level", "max_version_level"):
            feature[bound] = min(feature[bound], level)
    value["finalized_features"] = [row for row in value["finalized_features"] if row["max_version_level"]]


def _is_own(topic: dict[str, Any], conversation: Conversation) -> bool:
    name = topic["name"]
    return bool(topic["error_code"] or not name or name.startswith(conversation.prefix))


def _is_own_resource(found: dict[str, Any], conversation: Conversation) -> bool:
    named = found["resource_type"] in (TOPIC, GROUP)
    return bool(not named or found["resource_name"].startswith(conversation.prefix))


def _forget_old_assignments(group: dict[str, Any]) -> None:
    """While a generation has no assignments, Kafka returns those of the one before, and the gateway none."""
    if group["group_state"] == "CompletingRebalance":
        for member in group["members"]:
            del member["member_assignment"]


def _is_own_group(found: dict[str, Any], conversation: Conversation) -> bool:
    return bool(found["group_id"].startswith(conversation.prefix))


def _plain(value: Any, name: str, api: ApiKey, conversation: Conversation) -> Any:
    if name == "records":
        return None if value is None else list(_batches(bytes(value), conversation))
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        return {field: _plain(getattr(value, field), field, api, conversation) for field in fields}
    if isinstance(value, list):
        items = [_plain(item, name, api, conversation) for item in value]
        order = UNORDERED.get((api, name))
        return (
            items if order is None else sorted(items, key=lambda item: [str(item.get(key)) for key in order])
        )
    return _named(value, name, conversation)


def _named(value: Any, name: str, conversation: Conversation) -> Any:
    if isinstance(value, enum.IntEnum):
        value = int(value)
    if name in ("topic_id", "replica_directory_id"):
        return _topic_id(bytes(value), conversation)
    if name == "producer_id":
        return next((f"<producer {k}>" for k, v in conversation.producer_ids.items() if v == value), value)
    if name == "finalized_features_epoch" and value >= 0:
        return "<epoch>"
    if name in MEMBER_IDS and isinstance(value, str):
        return _member_id(value, conversation)
    if name == "session_id" and value == conversation.session:
        return "<session>"
    if name in VOLUME_BYTES and value > 0:
        return "<bytes>"
    if name == "host" and value == conversation.endpoint.host:
        return "<host>"
    if name == "port" and value == conversation.endpoint.port:
        return "<port>"
    return value


def _topic_id(value: bytes, conversation: Conversation) -> str:
    if value == ZERO_UUID:
        return "<zero>"
    return next((f"<id of {k}>" for k, v in conversation.topic_ids.items() if v == value), value.hex())


def _member_id(value: str, conversation: Conversation) -> str:
    """The alias of a member; for an id that no member got, the part that is not random."""
    known = next((f"<member {k}>" for k, v in conversation.member_ids.items() if v == value), None)
    return known or _RANDOM.sub("-<random>", value)


def _batches(data: bytes, conversation: Conversation) -> Iterator[dict[str, Any]]:
    """Every byte of complete batches. What a fetch cuts off at its end is dropped, as clients drop it.

    CRCs are checked, not shown: they differ where a producer id or the broker's clock does.
    """
    while len(data) >= BATCH_PREFIX_BYTES:
        size = BATCH_PREFIX_BYTES + int.from_bytes(data[8:12], "big")
        if size > len(data):
            return
        yield _batch(data[:size], conversation)
        data = data[size:]


def _batch(batch: bytes, conversation: Conversation) -> dict[str, Any]:
    header = read_header(batch)
    shown = header._asdict()
    shown["crc"] = "right" if crc32c(batch[CRC_COVERS_FROM:]) == header.crc else "wrong"
    shown["producer_id"] = _named(header.producer_id, "producer_id", conversation)
    if header.attributes & LOG_APPEND_TIME_BIT:
        shown["max_timestamp"] = "<now>" if header.max_timestamp >= conversation.started_ms else "past"
    if header.attributes & CONTROL_BIT:
        # The coordinator stamps its markers.
        for name in ("base_timestamp", "max_timestamp"):
            shown[name] = "<now>" if shown[name] >= conversation.started_ms else "past"
    if conversation.unpacks:
        # The codec stays to be seen in the attributes.
        del shown["batch_length"]
        records = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], MAX_UNPACKED_BYTES)
        return {**shown, "bytes": records.hex()}
    return {**shown, "bytes": batch[HEADER_BYTES:].hex()}
