"""The proxy between a client and a server, in the tests of stores."""

from tests.support.ports import FIRST_PORT, PORTS_OF_EACH, RANGES
from tests.support.tcp_proxy import linked


async def test_a_link_keeps_a_port_that_no_outgoing_connection_is_given() -> None:
    async with linked(1) as link:
        endpoint, port = link.endpoint, link.port
        assert FIRST_PORT <= port < FIRST_PORT + RANGES * PORTS_OF_EACH
        await link.stop()
        await link.start()
        assert (link.endpoint, link.port) == (endpoint, port)
        assert endpoint == f"127.0.0.1:{port}"
