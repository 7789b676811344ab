"""Which quota holds for a client, and with whom it shares it (KIP-13, KIP-55). Pure.

The first of these that has a quota of the key in question, as Kafka's documentation orders them:

| entity                              | shared by                             |
|-------------------------------------|---------------------------------------|
| (user, client id)                   | connections of the user and client id |
| (user, default client id)           | connections of the user and client id |
| user                                | all connections of the user           |
| (default user, client id)           | connections of the user and client id |
| (default user, default client id)   | connections of the user and client id |
| default user                        | all connections of the user           |
| client id                           | all connections with the client id    |
| default client id                   | all connections with the client id    |

User names are case-sensitive; a client without an id has the empty one.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.settings.state import QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota, and the user and client id that its use is counted for; "" where it is for all of them."""

    value: float
    user: str
    client_id: str


def find_limit(quotas: Mapping[QuotaEntity, float], user: str, client_id: str) -> Limit | None:
    """The quota of this user with this client id, among those of one key; None if there is none."""
    for user_name in (user, None):
        for entity in (
            ((CLIENT_ID, client_id), (USER, user_name)),
            ((CLIENT_ID, None), (USER, user_name)),
        ):
            if entity in quotas:
                return Limit(quotas[entity], user, client_id)
        of_user = ((USER, user_name),)
        if of_user in quotas:
            return Limit(quotas[of_user], user, "")
    for of_client in (((CLIENT_ID, client_id),), ((CLIENT_ID, None),)):
        if of_client in quotas:
            return Limit(quotas[of_client], "", client_id)
    return None


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address; of one IPv4 address seen over IPv6 the IPv4 one. None for anything else."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
