"""TLS below the clients' libraries: contexts, paced writes, both event loops."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from gateway.addresses import Address, Binding
from gateway.completion import Cancellable, Completion
from gateway.config import load_settings
from gateway.network.pipeline import Peer
from gateway.network.server import Server
from gateway.network.tls_writer import PIECE_BYTES, PacedWriter
from gateway.response import Buffers, Response
from gateway.security.tls import Certificates, build_context
from gateway.settings import ConfigError, Limits, Tls
from gateway.telemetry.metrics import Metrics
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from tests.support.certificates import Authority
from tests.support.raw import request

MIB = 1024 * 1024
WAIT_S = 20.0
LOOPBACK = Address("127.0.0.1", 0)


class LargeAnswers:
    """Answers with as many bytes as the correlation id says, in uneven buffers."""

    def __init__(self) -> None:
        self.served = {int(ApiKey.METADATA): (0, 0)}

    def is_pipelined(self, api_key: int) -> bool:
        return False

    def is_inline(self, api_key: int) -> bool:
        return False

    def may_park(self, api_key: int) -> bool:
        return False

    def start(
        self, request: Request, peer: Peer, received_at: float, completion: Completion[Buffers | None]
    ) -> Cancellable:
        raise NotImplementedError

    def starved_since(self) -> float:
        return 0.0

    def waiting_since(self) -> float:
        return 0.0

    async def answer(self, request: Request, peer: Peer, received_at: float) -> Response:
        content = pattern(request.header.correlation_id)
        return Response([content[:1], b"", content[1:1000], memoryview(content)[1000:]])


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def run_on(loop_factory: Callable[[], asyncio.AbstractEventLoop], main: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())  # type: ignore[arg-type]


LOOPS = [
    pytest.param(uvloop.new_event_loop, id="uvloop"),
    pytest.param(asyncio.new_event_loop, id="asyncio"),
]


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_requests_and_responses_of_every_size_pass_through_tls(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    issued = Authority(tmp_path).server()
    certificates = Certificates(Tls(certificate=str(issued.certificate), key=str(issued.key)))

    async def main() -> None:
        server = Server(Limits(drain_ms=1000), LargeAnswers(), Metrics(), certificates)
        await server.listen([Binding("SSL", LOOPBACK, LOOPBACK)])
        port = server.bound[0].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unverified())
        async with asyncio.timeout(WAIT_S):
            for size in (1, 100, 16_384, PIECE_BYTES, PIECE_BYTES + 1, 9 * MIB):
                writer.write(request(ApiKey.METADATA, 0, bytes(size), correlation_id=size))
                await writer.drain()
                assert int.from_bytes(await reader.readexactly(4), "big") == size
                assert await reader.readexactly(size) == pattern(size)
            writer.close()
            await server.close()

    run_on(loop_factory, main)


class Outlet(asyncio.Transport):
    """A transport that takes a limited number of bytes before it pauses its writer."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.written = b""
        self.largest = 0
        self.writer: PacedWriter | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.largest = max(self.largest, len(data))
        self.capacity -= len(data)
        if self.capacity <= 0 and self.writer is not None:
            self.writer.pause()


def test_a_paused_transport_is_given_nothing_until_it_resumes() -> None:
    outlet = Outlet(capacity=3 * PIECE_BYTES)
    writer = outlet.writer = PacedWriter(outlet)
    content = pattern(10 * PIECE_BYTES + 17)
    writer.writelines([content[:5], memoryview(content)[5:]])
    given = len(outlet.written)
    assert 3 * PIECE_BYTES <= given < 4 * PIECE_BYTES and outlet.largest == PIECE_BYTES
    assert writer.waiting_bytes == len(content) - given
    writer.writelines([b"next"])
    assert len(outlet.written) == given
    outlet.capacity = len(content)
    writer.resume()
    assert outlet.written == content + b"next"
    assert writer.waiting_bytes == 0


def test_what_was_not_sent_is_released_with_its_connection() -> None:
    outlet = Outlet(capacity=1)
    writer = outlet.writer = PacedWriter(outlet)
    writer.writelines([pattern(2 * PIECE_BYTES)])
    writer.clear()
    writer.resume()
    assert writer.waiting_bytes == 0 and len(outlet.written) == PIECE_BYTES


def test_weak_and_changing_connections_are_not_offered(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    context = build_context(Tls(certificate=str(issued.certificate), key=str(issued.key)))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.verify_mode is ssl.CERT_NONE


def test_certificate_and_key_may_lie_in_one_file(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    together = tmp_path / "both.pem"
    together.write_bytes(issued.certificate.read_bytes() + issued.key.read_bytes())
    assert build_context(Tls(certificate=str(together)))


def test_what_cannot_be_used_is_named_by_its_setting_and_nothing_of_it_is_shown(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, other = authority.server(), authority.server("other")
    certificate, key = str(issued.certificate), str(issued.key)
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("a secret")
    cases = [
        (Tls(), r"needs tls\.certificate"),
        (Tls(certificate=str(tmp_path / "gone")), r"tls\.certificate = .*gone: cannot read"),
        (Tls(certificate=certificate, key=str(tmp_path / "gone")), r"tls\.key = .*gone: cannot read"),
        (Tls(certificate=str(tmp_path), key=key), r"tls\.certificate = .*: cannot read"),
        (Tls(certificate=str(nonsense), key=key), r"tls\.certificate = .*nonsense.pem"),
        (Tls(certificate=certificate, key=str(nonsense)), r"tls\.key = .*nonsense.pem"),
        (Tls(certificate=certificate), r"tls\.certificate = "),
        (Tls(certificate=certificate, key=str(other.key)), r"tls\.key = .* is not the private key of"),
        (
            Tls(certificate=certificate, key=key, ca=str(nonsense), client_auth="required"),
            r"tls\.ca = .*no PEM",
        ),
        (
            Tls(certificate=certificate, key=key, ca=certificate, client_auth="required"),
            r"tls\.ca = .*is a CA",
        ),
        (Tls(certificate=certificate, key=key, key_password_file="/gone"), r"tls\.key_password_file = /gone"),
    ]
    for settings, expected in cases:
        with pytest.raises(ConfigError, match=expected) as refusal:
            build_context(settings)
        assert "a secret" not in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_failed_reload_keeps_the_context_and_is_one_event(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    certificates = Certificates(Tls(certificate=str(issued.certificate), key=str(issued.key)))
    before = certificates.context
    issued.key.write_text("")
    with capture_logs() as events:
        certificates.reload()
        assert certificates.context is before
        authority.server()
        certificates.reload()
    assert [event["event"] for event in events] == ["tls.reload_failed", "tls.reloaded"]
    assert certificates.context is not before


def test_client_certificates_need_a_ca() -> None:
    with pytest.raises(ConfigError, match=r"needs tls\.ca"):
        load_settings({"tls.client_auth": "required"}, {})


def test_a_password_is_not_taken_from_the_command_line_nor_shown() -> None:
    with pytest.raises(ConfigError, match="DRAGOMAN_TLS_KEY_PASSWORD") as refusal:
        load_settings({"tls.key_password": "hunter2"}, {})
    assert "hunter2" not in str(refusal.value)
    settings = load_settings({}, {"DRAGOMAN_TLS_KEY_PASSWORD": "hunter2"})
    assert settings.tls.key_password == "hunter2"
    assert "hunter2" not in repr(settings) and "hunter2" not in str(settings.tls)


def test_two_passwords_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        load_settings({"tls.key_password_file": "/x"}, {"DRAGOMAN_TLS_KEY_PASSWORD": "y"})
