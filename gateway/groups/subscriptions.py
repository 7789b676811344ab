"""Which topics consumers subscribe to, read from the metadata with which they join."""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers, whose metadata are a `ConsumerProtocolSubscription` message."""
_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")
_AFTER_VERSION: Final = 2
MAX_NAMES: Final = 30_000
"""That are read for one group: this is done at once, and takes half a microsecond each."""
MAX_KNOWN: Final = 8


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Topics of all these subscriptions; None if one of them cannot be read, or if they have too many names.
    Most members of a group subscribe to the same topics, which are read once."""
    topics: set[str] = set()
    known: list[bytes] = []
    left = MAX_NAMES
    for metadata in subscriptions:
        if any(metadata.startswith(array, _AFTER_VERSION) for array in known) and _has_version(metadata):
            continue
        try:
            names, end = topics_of(metadata, left)
        except ValueError:
            return None
        left -= len(names)
        topics.update(names)
        if len(known) < MAX_KNOWN:
            known.append(metadata[_AFTER_VERSION:end])
    return frozenset(topics)


def _has_version(metadata: bytes) -> bool:
    return metadata[0] < 0x80


def topics_of(metadata: bytes, most: int) -> tuple[list[str], int]:
    """Of a ConsumerProtocolSubscription: version int16, then an array of topic names; and where they end.
    ValueError if it is none, or has more than `most` names."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= min(len(metadata) // _LENGTH.size, most):
            raise ValueError("not a subscription")
        names, at = [], _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                raise ValueError("not a subscription")
            names.append(metadata[at : at + length].decode())
            at += length
    except struct.error as error:
        raise ValueError("not a subscription") from error
    return names, at
