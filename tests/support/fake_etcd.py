"""An etcd that answers what a test wants, in threads of its own: for what a real one does seldom."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from adapters.rpc.channel import grpc
from adapters.rpc.generated import etcd_pb2 as pb

CLUSTER_ID: Final = 7
CODES: Final = grpc.StatusCode


class Refusal(Exception):
    """The status of gRPC that a call ends with."""

    def __init__(self, code: Any, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class FakeEtcd:
    """Keys and values, and a hook for each call: it returns or raises what the call ends with, or None."""

    def __init__(self) -> None:
        self.version = "3.4.23"
        self.cluster_id = CLUSTER_ID
        self.values: dict[bytes, pb.KeyValue] = {}
        self.revision = 1
        self.on_txn: Callable[[pb.TxnRequest], None] = lambda request: None
        self.on_status: Callable[[], None] = lambda: None

    def status(self, _: pb.StatusRequest) -> pb.StatusResponse:
        self.on_status()
        return pb.StatusResponse(header=self._header(), version=self.version)

    def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        end = request.range_end or request.key + b"\0"
        found = [self.values[key] for key in sorted(self.values) if request.key <= key < end]
        return pb.RangeResponse(header=self._header(), kvs=found)

    def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        holds = all(self._holds(compare) for compare in request.compare)
        if holds:
            self.put(request)
        self.on_txn(request)
        return pb.TxnResponse(header=self._header(), succeeded=holds)

    def put(self, request: pb.TxnRequest) -> None:
        for operation in request.success:
            self.revision += 1
            put = operation.put
            self.values[put.key] = pb.KeyValue(key=put.key, value=put.value, mod_revision=self.revision)

    def _holds(self, compare: pb.Compare) -> bool:
        if compare.target == pb.Compare.VERSION:
            return False
        present = self.values.get(compare.key)
        return (present.mod_revision if present is not None else 0) == compare.mod_revision

    def _header(self) -> pb.Header:
        return pb.Header(cluster_id=self.cluster_id, revision=self.revision)


@contextmanager
def serving(etcd: FakeEtcd) -> Iterator[str]:
    """HOST:PORT on loopback."""
    services: dict[str, dict[str, tuple[Any, Callable[[Any], Any]]]] = {
        "etcdserverpb.KV": {"Range": (pb.RangeRequest, etcd.range), "Txn": (pb.TxnRequest, etcd.txn)},
        "etcdserverpb.Maintenance": {"Status": (pb.StatusRequest, etcd.status)},
    }
    server = grpc.server(ThreadPoolExecutor(2))
    for service, methods in services.items():
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _answering(answer), request.FromString, lambda response: response.SerializeToString()
            )
            for name, (request, answer) in methods.items()
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def _answering(answer: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def handle(request: Any, context: Any) -> Any:
        try:
            return answer(request)
        except Refusal as refusal:
            context.abort(refusal.code, refusal.details)

    return handle
