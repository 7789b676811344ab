"""Which topics consumers subscribe to, read from the metadata with which they join."""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers, whose metadata are a `ConsumerProtocolSubscription` message."""
_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Topics of all these subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for metadata in subscriptions:
        try:
            topics.update(_topics(metadata))
        except ValueError:
            return None
    return frozenset(topics)


def _topics(metadata: bytes) -> Iterable[str]:
    """Of a ConsumerProtocolSubscription: version int16, then an array of topic names. ValueError if it is
    none."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
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
    return names
