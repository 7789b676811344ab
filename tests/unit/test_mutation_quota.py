"""The token bucket of created and deleted partitions, on a clock that is a number."""

from dataclasses import dataclass

import pytest

from gateway.quotas.mutations import QUOTA_EXCEEDED, MutationQuota, TokenBucket

WINDOWS_S = 11


@dataclass
class Clock:
    ms: int = 0

    def now_ms(self) -> int:
        return self.ms


def quota(rate: float, clock: Clock, bucket: TokenBucket, is_strict: bool = True) -> MutationQuota:
    return MutationQuota(bucket, rate, is_strict, clock.now_ms)


def test_a_thousand_creations_take_as_long_as_the_quota_says() -> None:
    clock, bucket, created = Clock(), TokenBucket(WINDOWS_S), 0
    while created < 1000:
        request = quota(10, clock, bucket)
        if request.take(1) is None:
            created += 1
        else:
            assert request.throttle_ms() > 0
            clock.ms += request.throttle_ms()
    assert 88_000 <= clock.ms <= 100_000


def test_one_change_may_be_of_any_size_and_is_paid_for_afterwards() -> None:
    clock, bucket = Clock(), TokenBucket(WINDOWS_S)
    assert quota(2, clock, bucket).take(100) is None
    refused = quota(2, clock, bucket)
    assert refused.take(1) is QUOTA_EXCEEDED
    assert refused.throttle_ms() == (100 - 2 * WINDOWS_S) * 1000 / 2
    clock.ms = 39_000
    assert refused.throttle_ms() == 0
    assert quota(2, clock, bucket).take(1) is None


def test_a_bucket_holds_no_more_than_all_windows_give() -> None:
    clock, bucket = Clock(), TokenBucket(WINDOWS_S)
    assert bucket.tokens(2, clock.ms) == 2 * WINDOWS_S
    bucket.take(5, 2, clock.ms)
    assert bucket.tokens(2, 10**9) == 2 * WINDOWS_S
    assert bucket.tokens(1, 10**9) == WINDOWS_S


def test_a_permissive_quota_refuses_nothing_and_throttles() -> None:
    clock, bucket = Clock(), TokenBucket(WINDOWS_S)
    request = quota(1, clock, bucket, is_strict=False)
    assert request.take(WINDOWS_S) is None
    assert request.throttle_ms() == 0
    assert request.take(3) is None
    assert request.throttle_ms() == 3000


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_client_without_a_quota_is_not_counted(is_strict: bool) -> None:
    request = MutationQuota(None, 0.0, is_strict, Clock().now_ms)
    assert [request.take(10**9) for _ in range(3)] == [None] * 3
    assert request.throttle_ms() == 0


def test_a_tiny_rate_gives_a_wait_that_can_be_encoded() -> None:
    bucket = TokenBucket(WINDOWS_S)
    bucket.take(5, 1e-300, 0)
    assert bucket.wait_ms(1e-300, 0) == 2**31 - 1
