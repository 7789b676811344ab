"""ApiVersions, 0-4, and the one API that is answered in versions it does not have."""

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from tests.differential.exchange import Appended, Body, Cut, Exchange, Frame
from tests.support.raw import request

KEY = ApiKey.API_VERSIONS
CLIENT = ApiVersionsRequest("dragoman-tests", "1.0")


def _named(name: str, version: str) -> ApiVersionsRequest:
    return ApiVersionsRequest(name, version)


EXCHANGES = [
    *(Exchange(f"api versions: what is spoken, v{v}", KEY, v, CLIENT) for v in range(5)),
    *(
        Exchange(f"api versions: unknown version {v}", KEY, v, Frame(request(KEY, v, flexible=v >= 3)))
        for v in (-1, 5, 99, 32767, -32768)
    ),
    Exchange(
        "api versions: unknown version with a body", KEY, 9, Frame(request(KEY, 9, b"\0\0\0", flexible=True))
    ),
    Exchange("api versions: no software name", KEY, 3, _named("", "1")),
    Exchange("api versions: no software version", KEY, 4, _named("x", "")),
    Exchange("api versions: a space in the software name", KEY, 3, _named("a b", "1")),
    Exchange("api versions: a dash at the end of the name", KEY, 4, _named("a-", "1")),
    Exchange("api versions: a dot inside the version", KEY, 4, _named("a", "1.-2")),
    Exchange("api versions: bytes after v0", KEY, 0, Body(b"\1\2\3")),
    Exchange("api versions: bytes after v4", KEY, 4, Appended(CLIENT, b"\1\2\3")),
    Exchange("api versions: v3 without its body", KEY, 3, Body(b"")),
    Exchange("api versions: v3 cut in its tags", KEY, 3, Cut(CLIENT, 1)),
    Exchange("api versions: v4 cut in the software version", KEY, 4, Cut(CLIENT, 3)),
    Exchange("api versions: null software name", KEY, 3, Body(b"\0\x02a\0")),
    Exchange("api versions: an unknown tagged field", KEY, 4, Body(b"\x02a\x02b\x01\x07\x03xyz")),
    Exchange("api versions: a tagged field beyond the frame", KEY, 4, Body(b"\x02a\x02b\x01\x07\x7fxyz")),
    Exchange(
        "api versions: a null client id",
        KEY,
        4,
        Frame(request(KEY, 4, b"\x02a\x02b\0", client_id=None, flexible=True)),
    ),
]
