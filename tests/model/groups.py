"""The model of groups, offsets, quotas and configs: plain dicts that a ledger must agree with."""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ledger.errors import ErrorName
from ledger.groups.records import OffsetsRemoved
from ledger.groups.requests import (
    CommitOffsets,
    DrainOffsets,
    GroupGone,
    OffsetsStored,
    RemoveGroup,
    RemoveOffsets,
    StoreGroup,
)
from ledger.groups.state import Group, Groups, Member, OffsetKey, OffsetRow
from ledger.records import MetadataRecord
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.settings.configs import Altered, ConfigChange, ConfigOp
from ledger.settings.requests import QuotaChange, SetClientQuotas, SetResourceConfigs
from ledger.settings.state import QuotaEntity, ResourceKey
from ledger.state import LedgerState
from ledger.types import TopicId

GROUPS = ["g", "h"]
UNKNOWN = Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(slots=True)
class ModelGroups:
    """Changes take effect at once: a request sees those of earlier requests in the same entry."""

    groups: dict[str, tuple[Group, int]] = field(default_factory=dict)
    """With the time of the entry that stored it."""
    offsets: dict[tuple[str, OffsetKey], tuple[OffsetRow, int]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    configs: dict[ResourceKey, dict[str, str]] = field(default_factory=dict)

    def judge(
        self,
        request: Request,
        result: LedgerResult,
        written: Sequence[MetadataRecord],
        now_ms: int,
        exists: Callable[[TopicId, int], bool],
        known: Collection[TopicId],
    ) -> None:
        """`exists` says whether a partition exists at this place of the entry; `known` are the topics before
        it."""
        match request:
            case StoreGroup(group=group):
                assert result == Done(1)
                self.groups[group.group_id] = group, now_ms
            case CommitOffsets():
                there = [exists(row.topic_id, row.partition) for row in request.rows]
                assert result == OffsetsStored([None if known_ else UNKNOWN for known_ in there])
                for row, known_ in zip(request.rows, there, strict=True):
                    if known_:
                        key = request.group_id, (row.topic_id, row.partition)
                        self.offsets[key] = row, now_ms
            case RemoveOffsets():
                self._remove_offsets(request, result)
            case RemoveGroup():
                self._remove_group(request, result, written)
            case DrainOffsets(limit=limit):
                dead = {(group, key) for group, key in self.offsets if key[0] not in known}
                gone = removed(written)
                assert set(gone) <= dead and len(gone) == min(len(dead), limit)
                assert result == Done(len(gone))
                self._forget(gone)
            case SetClientQuotas():
                self._set_quotas(request, result)
            case SetResourceConfigs():
                self._set_configs(request, result)
            case _:
                raise AssertionError(f"the model does not know {request}")

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        return [key for group, key in self.offsets if group == group_id]

    def _forget(self, gone: Collection[tuple[str, OffsetKey]]) -> None:
        for key in gone:
            del self.offsets[key]

    def _remove_offsets(self, request: RemoveOffsets, result: LedgerResult) -> None:
        bound = request.committed_before_ms
        gone = {
            (request.group_id, key)
            for key in request.keys
            if (request.group_id, key) in self.offsets
            and (bound is None or self.offsets[request.group_id, key][1] < bound)
        }
        assert result == Done(len(gone))
        self._forget(gone)

    def _remove_group(
        self, request: RemoveGroup, result: LedgerResult, written: Sequence[MetadataRecord]
    ) -> None:
        group_id = request.group_id
        held = self.keys_of(group_id)
        if group_id in self.groups and self.groups[group_id][0].members:
            assert result == Refused(ErrorName.NON_EMPTY_GROUP)
        elif group_id not in self.groups and not held:
            assert result == Refused(ErrorName.GROUP_ID_NOT_FOUND)
        else:
            gone = removed(written)
            assert len(gone) == min(len(held), request.limit)
            self._forget(gone)
            assert result == GroupGone(len(held) - len(gone))
            if len(gone) == len(held):
                self.groups.pop(group_id, None)

    def _set_quotas(self, request: SetClientQuotas, result: LedgerResult) -> None:
        before = {entity: dict(values) for entity, values in self.quotas.items()}
        for change in request.changes:
            held = self.quotas.setdefault(change.entity, {})
            for key, value in change.values.items():
                held.pop(key, None)
                if value is not None:
                    held[key] = value
            if not held:
                del self.quotas[change.entity]
        changed = {c.entity for c in request.changes if before.get(c.entity) != self.quotas.get(c.entity)}
        assert result == Done(len(changed))

    def _set_configs(self, request: SetResourceConfigs, result: LedgerResult) -> None:
        resource = request.resource_type, request.name
        held = {} if request.replace else dict(self.configs.get(resource, {}))
        for change in request.changes:
            held.pop(change.name, None)
            if change.op is ConfigOp.SET:
                held[change.name] = change.value
        assert result == Altered(held)
        self.configs[resource] = held
        if not held:
            del self.configs[resource]

    def check(self, state: LedgerState) -> None:
        """The state agrees, and its indexes are right."""
        real = state.groups
        assert {name: (group, ms) for name, (group, ms) in self.groups.items()} == {
            name: (without_time(group), group.changed_ms) for name, group in real.by_id.items()
        }
        assert self.offsets == {
            (group_id, key): (
                OffsetRow(*key, found.offset, found.leader_epoch, found.expire_ms, found.metadata),
                found.committed_ms,
            )
            for group_id, held in real.offsets.items()
            for key, found in held.items()
        }
        assert all(real.offsets.values())
        assert self.quotas == state.quotas.by_entity
        by_key: dict[str, dict[QuotaEntity, float]] = {}
        for entity, values in self.quotas.items():
            for key, value in values.items():
                by_key.setdefault(key, {})[entity] = value
        assert by_key == state.quotas.by_key
        assert self.configs == state.resource_configs.by_resource
        check_indexes(real, state.topics.by_id)


def removed(written: Sequence[MetadataRecord]) -> list[tuple[str, OffsetKey]]:
    return [
        (record.group_id, key)
        for record in written
        if isinstance(record, OffsetsRemoved)
        for key in record.keys
    ]


def without_time(group: Group) -> Group:
    return Group(
        group.group_id,
        group.protocol_type,
        group.generation,
        group.protocol,
        group.leader,
        group.members,
        group.synced,
    )


def check_indexes(groups: Groups, live: Collection[TopicId]) -> None:
    counts: dict[TopicId, dict[str, int]] = {}
    for group_id, held in groups.offsets.items():
        for topic_id, partition in held:
            of_topic = counts.setdefault(topic_id, {})
            of_topic[group_id] = of_topic.get(group_id, 0) + 1
            assert partition < groups.by_topic[topic_id].width
    assert counts == {topic_id: holders.counts for topic_id, holders in groups.by_topic.items()}
    assert set(groups.dead) == {topic_id for topic_id in counts if topic_id not in live}
    assert len(list(groups.dead_offsets())) == sum(sum(counts[id_].values()) for id_ in groups.dead)


def anything_of_groups(
    choose: random.Random, model: ModelGroups, topics: Sequence[TopicId], now_ms: int
) -> Request:
    """`topics`: for which offsets are committed, also deleted ones."""
    kind = choose.random()
    group_id = choose.choice(GROUPS)
    keys = [(choose.choice(topics), choose.randrange(3)) for _ in range(choose.randint(1, 4))]
    if kind < 0.4:
        rows = [OffsetRow(*key, choose.randrange(99), -1, -1, choose.choice(["", "m"])) for key in keys]
        return CommitOffsets(group_id, rows)
    if kind < 0.55:
        return StoreGroup(some_group(choose, group_id))
    if kind < 0.65:
        bound = choose.choice([None, now_ms, now_ms + 1, now_ms - 200])
        held = model.keys_of(group_id)
        return RemoveOffsets(group_id, [*keys, *choose.sample(held, len(held) // 2)], bound)
    if kind < 0.75:
        return RemoveGroup(group_id, choose.choice([0, 1, 2, 100]))
    if kind < 0.85:
        return DrainOffsets(choose.choice([1, 2, 100]))
    if kind < 0.92:
        entity = choose.choice([(("user", None),), (("client-id", "c"), ("user", "u"))])
        values = {choose.choice("xy"): choose.choice([None, 1.0, 2.5]) for _ in range(2)}
        return SetClientQuotas([QuotaChange(entity, values) for _ in range(choose.randint(0, 2))])
    changes = [
        ConfigChange(choose.choice([ConfigOp.SET, ConfigOp.DELETE]), choose.choice("ab"), str(n))
        for n in range(choose.randint(0, 3))
    ]
    resource = choose.choice([("broker", ""), ("group", "g")])
    return SetResourceConfigs(*resource, changes, replace=choose.random() < 0.3)


def some_group(choose: random.Random, group_id: str) -> Group:
    names = [f"m{n}" for n in range(choose.randrange(3))]
    members = tuple(
        Member(name, choose.choice([None, "i"]), "c", "/h", 6, 5, (("range", b"s"),), b"a") for name in names
    )
    leader = names[0] if names else None
    return Group(group_id, "consumer", choose.randrange(9), "range", leader, members, choose.random() < 0.5)
