"""Topics are read from the metadata of members: at once, so what that takes is bounded."""

import struct

import pytest

from gateway.groups import subscriptions
from gateway.groups.subscriptions import MAX_NAMES, subscribed_topics


def subscription(*names: str, version: int = 1, user_data: bytes = b"") -> bytes:
    encoded = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    return struct.pack(">hi", version, len(names)) + encoded + struct.pack(">i", len(user_data)) + user_data


def test_members_with_the_same_topics_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    topics = subscriptions.topics_of

    def noted(metadata: bytes, most: int) -> tuple[list[str], int]:
        read.append(metadata)
        return topics(metadata, most)

    monkeypatch.setattr(subscriptions, "topics_of", noted)
    same = [subscription("a", "b", version=n % 3, user_data=bytes(n)) for n in range(1_000)]
    assert subscribed_topics([*same, subscription("a", "bc"), subscription("a")]) == frozenset(
        {"a", "b", "bc"}
    )
    assert len(read) == 3


def test_one_that_begins_as_another_is_read_all_the_same() -> None:
    """The number of names is a part of what is compared."""
    assert subscribed_topics([subscription("a"), subscription("a", "b")]) == frozenset({"a", "b"})
    unknown_version = b"\xff\xff" + subscription("a")[2:]
    assert subscribed_topics([subscription("a"), unknown_version]) is None


def test_more_names_than_can_be_read_at_once_are_not_read() -> None:
    many = [subscription(*(f"t{n}.{m}" for m in range(MAX_NAMES // 4))) for n in range(5)]
    found = subscribed_topics(many[:4])
    assert found is not None and len(found) == MAX_NAMES
    assert subscribed_topics(many) is None
    assert subscribed_topics([struct.pack(">hi", 0, 389_000) + bytes(2 * 389_000)]) is None
