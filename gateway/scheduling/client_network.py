"""Which addresses are one client's: limits and turns are counted by these."""

import ipaddress
from typing import Final

_NETWORK_V6: Final = 64


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 one: a host with one address of it mostly has them all."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _NETWORK_V6 << _NETWORK_V6, _NETWORK_V6)))
