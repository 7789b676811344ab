"""Calls by gRPC, and what a filer says about a put."""

import asyncio
from dataclasses import dataclass

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs grpcio: pip install dragoman[etcd]")

from adapters.metadata.etcd_errors import explained
from adapters.metadata.filer import outcome_of
from adapters.metadata.filer_client import FilerAddress
from adapters.rpc.caller import Caller, Limits
from adapters.rpc.channel import Dial, grpc
from adapters.rpc.endpoint import Endpoint, Rpc
from adapters.rpc.failures import CallFailed, Meaning
from adapters.rpc.generated import filer_pb2 as pb
from adapters.rpc.tls import TlsBytes
from ledger.errors import StoreUnavailable
from ledger.ports import Lost, Unknown, Won

FILER = FilerAddress("host:1", "/root")
LONG = "first line\nsecond " + "x" * 10_000


async def test_a_call_under_way_ends_with_its_result_although_closing_was_given_up() -> None:
    caller = Caller("a store", Limits(), 1, lambda failed: StoreUnavailable(str(failed)))
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def attempt(_: float) -> str:
        begun.set()
        await may_end.wait()
        return "answered"

    call = asyncio.create_task(caller.until_answered(attempt, writes=True))
    await begun.wait()
    closing = asyncio.create_task(caller.close())
    # It has begun, and waits.
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    may_end.set()
    assert await call == "answered"


class Answering:
    """A channel whose calls fail with these details."""

    def __init__(self, details: str) -> None:
        self._details = details

    def unary_unary(self, *_: object, **__: object) -> object:
        async def call(*_: object, **__: object) -> None:
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), self._details)

        return call


@dataclass(frozen=True)
class ToAnswering(Dial):
    details: str = ""

    def here(self, files: TlsBytes | None) -> Answering:
        return Answering(self.details)


@pytest.mark.parametrize(
    ("details", "writes", "meaning"),
    [
        ("CLIENT: Received message larger than max (2 vs. 1)", True, Meaning.UNKNOWN),
        ("CLIENT: Received message larger than max (2 vs. 1)", False, Meaning.TOO_LARGE),
        ("grpc: trying to send message larger than max (2 vs. 1)", True, Meaning.UNKNOWN),
        ("grpc: received message larger than max (2 vs. 1)", True, Meaning.TOO_LARGE),
    ],
)
async def test_a_write_whose_answer_is_too_large_may_have_been_made(
    details: str, writes: bool, meaning: Meaning
) -> None:
    rpc: Rpc[bytes, bytes] = Rpc("/a/b", bytes, writes=writes)
    endpoint = Endpoint(ToAnswering("host:1", None, (), "etcd at host:1", details), [rpc], explained)
    with pytest.raises(CallFailed) as failed:
        await endpoint.call(rpc, b"", (), 1.0)
    assert failed.value.meaning is meaning


def test_a_filer_refuses_for_certain_only_with_a_code_that_is_known() -> None:
    assert outcome_of(FILER, pb.TransactionResponse(), "v") == Won("v")
    for code in (pb.PRECONDITION_FAILED, pb.ALREADY_EXISTS):
        assert outcome_of(FILER, pb.TransactionResponse(error="x", error_code=code), "v") == Lost()
    for code in (pb.NAME_TOO_LONG, pb.PARENT_IS_FILE, pb.EXISTING_IS_DIRECTORY, pb.EXISTING_IS_FILE):
        with pytest.raises(StoreUnavailable, match="give Dragoman a directory of its own"):
            outcome_of(FILER, pb.TransactionResponse(error="x", error_code=code), "v")
    unknown = pb.TransactionResponse.FromString(b"\x10\x63")
    assert outcome_of(FILER, unknown, "v") == Unknown(f"{FILER} could not write: code 99")
    assert isinstance(outcome_of(FILER, pb.TransactionResponse(error="disk"), "v"), Unknown)


def test_what_servers_report_is_cut_to_a_line() -> None:
    outcome = outcome_of(FILER, pb.TransactionResponse(error=LONG), "v")
    assert isinstance(outcome, Unknown)
    for sentence in (outcome.reason, explained("etcd at host:1", "UNAUTHENTICATED", LONG).sentence):
        assert len(sentence) < 400
        assert "\n" not in sentence
