"""What the three APIs of ACLs share: there is no authorizer, and Kafka does not parse UNKNOWN elements."""

from typing import Final

from gateway.wire.errors import Malformed

NO_AUTHORIZER: Final = "No Authorizer is configured."
NO_AUTHORIZER_AT_BROKER: Final = "No Authorizer is configured on the broker"
"""Kafka's words, of its controller and its broker."""
UNKNOWN: Final = 0


def check_elements(*elements: int) -> None:
    """Of a rule or filter, by their numbers. Errors: Malformed where one is UNKNOWN."""
    if UNKNOWN in elements:
        raise Malformed("an ACL or a filter of ACLs with UNKNOWN elements")
