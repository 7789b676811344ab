"""The client quota manager: measures what clients use against their quotas, and alters those quotas.

Each gateway measures for itself, as each broker of Kafka does: over two gateways a client gets twice its
quota.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address

from gateway.coordination.ledger import Ledger
from gateway.quotas.alter import CONNECTION, MUTATION, CheckedEdit
from gateway.quotas.lookup import IP, Limit, find_limit, parse_address
from gateway.quotas.meter import RateMeter
from gateway.quotas.mutations import MutationQuota, TokenBucket
from gateway.settings import Quotas
from ledger.requests import Refused
from ledger.settings.decide import MAX_CHANGES
from ledger.settings.requests import QuotaChange, SetClientQuotas
from ledger.settings.state import QuotaEntity

MAX_CONNECTION_WAIT_MS = 1_000
"""As Kafka bounds it by the window that is its default."""


class ClientQuotaManager:
    """`now_ms` is a monotonic clock."""

    def __init__(self, shard: Ledger, settings: Quotas, now_ms: Callable[[], int]) -> None:
        self.shard = shard
        self._settings = settings
        self._now_ms = now_ms
        self._meters: OrderedDict[tuple[str, str, str], RateMeter] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()
        self._addresses: Mapping[IPv4Address | IPv6Address | None, float] = {}
        self._addresses_version = -1

    def has(self, key: str) -> bool:
        """Whether any entity has a quota of this key."""
        return key in self.shard.state.quotas.by_key

    def record(self, key: str, user: str, client_id: str, amount: float) -> int:
        """Count `amount` against the client's quota. Returns the throttle time in ms, or 0."""
        limit = self._limit(key, user, client_id)
        if limit is None:
            return 0
        now_ms = self._now_ms()
        meter = self._meter(key, limit)
        meter.record(amount, now_ms)
        return meter.throttle_ms(limit.value, now_ms)

    def unrecord(self, key: str, user: str, client_id: str, amount: float) -> None:
        """Take back what was recorded but not used."""
        limit = self._limit(key, user, client_id)
        if limit is not None:
            self._meter(key, limit).record(-amount, self._now_ms())

    def max_at_once(self, key: str, user: str, client_id: str) -> float:
        """The amount that the quota allows in one whole window of samples; infinite without a quota."""
        limit = self._limit(key, user, client_id)
        if limit is None:
            return float("inf")
        return limit.value * (self._settings.quota_window_num - 1) * self._settings.quota_window_size_seconds

    def connection_wait_ms(self, address: str) -> int:
        """Count a new connection. Above 0, it exceeds the quota of its address, and must be closed after this
        time."""
        if not self.has(CONNECTION):
            return 0
        parsed = parse_address(address)
        limits = self._address_limits()
        limit = limits.get(parsed) or limits.get(None)
        if parsed is None or limit is None:
            return 0
        now_ms = self._now_ms()
        meter = self._meter(CONNECTION, Limit(limit, str(parsed), ""))
        meter.record(1.0, now_ms)
        wait_ms = min(meter.throttle_ms(limit, now_ms), MAX_CONNECTION_WAIT_MS)
        if wait_ms:
            meter.record(-1.0, now_ms)
        return wait_ms

    def mutations(self, user: str, client_id: str, is_strict: bool) -> MutationQuota:
        """The quota of a request that creates or deletes partitions."""
        limit = self._limit(MUTATION, user, client_id)
        if limit is None:
            return MutationQuota(None, 0.0, is_strict, self._now_ms)
        buckets, settings = self._buckets, self._settings
        shared_by = limit.user, limit.client_id
        bucket = buckets.get(shared_by)
        if bucket is None:
            seconds = settings.quota_window_num * settings.quota_window_size_seconds
            bucket = buckets[shared_by] = TokenBucket(seconds)
            if len(buckets) > settings.meters:
                buckets.popitem(last=False)
        else:
            buckets.move_to_end(shared_by)
        return MutationQuota(bucket, limit.value, is_strict, self._now_ms)

    async def alter(self, edits: Sequence[CheckedEdit], deadline: float) -> list[Refused | None]:
        """Make changes durable. Returns the refusal of each, or None. Raises StoreError if they could not be
        stored, TimeoutError if the outcome is unknown."""
        due = [QuotaChange(edit.entity, edit.changes) for edit in edits if edit.changes]
        failed: dict[QuotaEntity, Refused] = {}
        for first in range(0, len(due), MAX_CHANGES):
            changes = due[first : first + MAX_CHANGES]
            result = await self.shard.ask(SetClientQuotas(changes), deadline)
            if isinstance(result, Refused):
                failed |= {change.entity: result for change in changes}
        return [edit.refused or failed.get(edit.entity) for edit in edits]

    def _limit(self, key: str, user: str, client_id: str) -> Limit | None:
        quotas = self.shard.state.quotas.by_key.get(key)
        return None if quotas is None else find_limit(quotas, user, client_id)

    def _meter(self, key: str, limit: Limit) -> RateMeter:
        meters, settings = self._meters, self._settings
        shared_by = key, limit.user, limit.client_id
        meter = meters.get(shared_by)
        if meter is None:
            window_ms = 1000 * settings.quota_window_size_seconds
            meter = meters[shared_by] = RateMeter(settings.quota_window_num, window_ms)
            if len(meters) > settings.meters:
                meters.popitem(last=False)
        else:
            meters.move_to_end(shared_by)
        return meter

    def _address_limits(self) -> Mapping[IPv4Address | IPv6Address | None, float]:
        """Quotas by address; None is the default."""
        quotas = self.shard.state.quotas
        if quotas.version != self._addresses_version:
            self._addresses_version = quotas.version
            self._addresses = {
                parse_address(name) if name is not None else None: value
                for ((kind, name), *_), value in quotas.by_key[CONNECTION].items()
                if kind == IP
            }
        return self._addresses
