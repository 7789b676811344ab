"""Shared by the three ACL APIs: there is no authorizer, and Kafka does not parse UNKNOWN elements."""

from typing import Final

from gateway.wire.errors import Malformed

NO_AUTHORIZER: Final = "No Authorizer is configured."
NO_AUTHORIZER_AT_BROKER: Final = "No Authorizer is configured on the broker"
"""The messages of Kafka's controller and of its broker."""
UNKNOWN: Final = 0


def check_elements(*elements: int) -> None:
    """Check the elements of an ACL or filter, by their numbers. Raises Malformed if one is UNKNOWN."""
    if UNKNOWN in elements:
        raise Malformed("an ACL or a filter of ACLs with UNKNOWN elements")
