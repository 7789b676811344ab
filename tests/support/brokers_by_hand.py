"""Brokers that respond to a few APIs with what a test says: servers as commands may meet them.

with brokers({ApiKey.LIST_TRANSACTIONS: listed}, nodes=2) as bootstrap: ...
"""

import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from gateway.wire.apis import ApiKey
from gateway.wire.header import decode_request_header, encode_response_header
from gateway.wire.messages import codec
from gateway.wire.messages.generated.api_versions import ApiVersion, ApiVersionsResponse
from gateway.wire.messages.generated.metadata import MetadataResponse, MetadataResponseBroker

Respond: TypeAlias = Callable[[int, Any], Any]
"""From (node id, request) to the response."""


@contextmanager
def brokers(responses: Mapping[ApiKey, Respond], nodes: int = 1) -> Iterator[str]:
    """Each API has version 0 alone, but Metadata. Yields the address of the first node."""
    with ExitStack() as stack:
        servers = [stack.enter_context(_Server(node)) for node in range(1, nodes + 1)]
        listed = [
            MetadataResponseBroker(server.node, "127.0.0.1", server.server_address[1]) for server in servers
        ]
        metadata = MetadataResponse(brokers=listed, controller_id=1, cluster_id="by hand")
        versions = [ApiVersion(key, 0, 9 if key is ApiKey.METADATA else 0) for key in responses]
        versions += [ApiVersion(ApiKey.METADATA, 0, 9), ApiVersion(ApiKey.API_VERSIONS, 0, 0)]
        for server in servers:
            server.responses = {
                ApiKey.API_VERSIONS: lambda *_: ApiVersionsResponse(api_keys=versions),
                ApiKey.METADATA: lambda *_: metadata,
                **responses,
            }
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield f"127.0.0.1:{servers[0].server_address[1]}"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, node: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.node = node
        self.responses: Mapping[ApiKey, Respond] = {}


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = memoryview(self.rfile.read(int.from_bytes(size)))
            header, body_at = decode_request_header(frame)
            key, version = ApiKey(header.api_key), header.api_version
            request = codec.decode_request(key, version, frame[body_at:])
            response = self.server.responses[key](self.server.node, request)
            data = encode_response_header(key, version, header.correlation_id)
            data += codec.encode_response(key, version, response)
            self.wfile.write(len(data).to_bytes(4) + data)
