"""Which addresses are one client's, for limits and fair shares by address."""

import ipaddress
from typing import Final

_NETWORK_V6: Final = 64


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address: a host mostly has all addresses of its /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _NETWORK_V6 << _NETWORK_V6, _NETWORK_V6)))
