"""AlterClientQuotas, 0-1, and DescribeClientQuotas, 0-1.

Defaults of a type hold for every client of the suite, so they are set far above what it needs, and taken
away again. Not compared: quotas of host names, which only Kafka looks up.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from gateway.wire.messages.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.differential.batches import i16, i32
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, Step
from tests.differential.steps import Create, Done

ALTER = ApiKey.ALTER_CLIENT_QUOTAS
DESCRIBE = ApiKey.DESCRIBE_CLIENT_QUOTAS
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"
EXACT, DEFAULT, ANY = range(3)
MUCH = 1e15

Part = tuple[str, str | None]
Op = tuple[str, float | None]
Entry = tuple[Sequence[Part], Sequence[Op]]
C: Part = ("client-id", "{c}")
U: Part = ("user", "{u}")
ADDRESS: Part = ("ip", "10.1.2.3")


def altering(*entries: Entry, dry: bool = False) -> AlterClientQuotasRequest:
    """An op without a value removes."""
    return AlterClientQuotasRequest(
        [
            AlterClientQuotasRequestEntryData(
                [AlterClientQuotasRequestEntityData(*part) for part in parts],
                [OpData(key, value or 0.0, value is None) for key, value in ops],
            )
            for parts, ops in entries
        ],
        dry,
    )


def described(
    *components: tuple[str, int, str | None], strict: bool = False, version: int = 1, is_fenced: bool = False
) -> Call:
    requested = [ComponentData(*one) for one in components]
    return Call(DESCRIBE, version, DescribeClientQuotasRequest(requested, strict), is_fenced)


OWN = (
    described(("client-id", EXACT, "{c}"), is_fenced=True),
    described(("user", EXACT, "{u}")),
    described(("ip", EXACT, "10.1.2.3")),
)


def _alter(
    name: str, *entries: Entry, version: int = 1, dry: bool = False, before: Sequence[Step] = ()
) -> Exchange:
    request = altering(*entries, dry=dry)
    gone = {tuple(parts): [(key, None) for key in _KEYS] for parts, _ in entries if _is_right(parts)}
    tidy = Call(ALTER, 1, altering(*gone.items()))
    after = [*OWN, tidy] if gone else list(OWN)
    return Exchange(f"alter quotas: {name}, v{version}", ALTER, version, request, before, after)


_KEYS = (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION)


def _is_right(parts: Sequence[Part]) -> bool:
    kinds = {kind for kind, _ in parts}
    return bool(parts) and all(name != "" for _, name in parts) and kinds <= {"user", "client-id"}


def _set(*entries: Entry) -> Done:
    return Done(Call(ALTER, 1, altering(*entries)))


_BEFORE = (_set(([C], [(PRODUCE, MUCH), (FETCH, 5e14)])),)
_BAD_VALUES: Sequence[Op] = (
    (PRODUCE, 0.0),
    (PRODUCE, -1.0),
    (PRODUCE, 1.5),
    (PRODUCE, 1.0000001),
    (PRODUCE, 1e19),
    (PRODUCE, 2.0**63),
    (PRODUCE, float("inf")),
    (REQUEST, 0.0),
    (REQUEST, 1e-300),
    (REQUEST, 1e300),
    (MUTATION, 0.5),
    (CONNECTION, 5.0),
    ("nonsense", 5.0),
    ("", 5.0),
    ("SCRAM-SHA-256", 5.0),
)
_BAD_ADDRESS_VALUES: Sequence[Op] = (
    (CONNECTION, 7.0),
    (CONNECTION, 7.5),
    (CONNECTION, 2.0**31),
    (CONNECTION, 2.0**31 - 1),
    (CONNECTION, 0.0),
    (PRODUCE, 7.0),
)

_ALTERED: Final[Mapping[str, Sequence[Part]]] = {
    "a client id": [C],
    "a user": [U],
    "both": [C, U],
    "both the other way round": [U, C],
    "the default client id": [("client-id", None)],
    "the default user": [("user", None)],
    "a client id of the default user": [C, ("user", None)],
    "the default client id of a user": [("client-id", None), U],
    "both defaults": [("client-id", None), ("user", None)],
    "nothing": [],
    "an unknown type": [("group", "{c}")],
    "an unknown type and a known one": [("group", "{c}"), U],
    "an empty client id": [("client-id", "")],
    "an empty user": [("user", "")],
    "an address": [ADDRESS],
    "an address and a user": [ADDRESS, U],
    "a type twice": [C, ("client-id", "{d}")],
}

_ALTER = [
    *(
        _alter(f"of {name}", (parts, [(PRODUCE, MUCH), (REQUEST, 1e9)]), version=version)
        for version in (0, 1)
        for name, parts in _ALTERED.items()
    ),
    *(_alter(f"{key} {value}", ([C], [(key, value)])) for key, value in _BAD_VALUES),
    *(_alter(f"of a user, {key} {value}", ([U], [(key, value)])) for key, value in _BAD_VALUES[-2:]),
    *(
        _alter(f"of an address, {key} {value}", ([ADDRESS], [(key, value)]))
        for key, value in _BAD_ADDRESS_VALUES
    ),
    _alter("the address is gone", ([ADDRESS], [(CONNECTION, None)])),
    _alter("of all addresses", ([("ip", None)], [(CONNECTION, 2e9)])),
    _alter("of no addresses", ([("ip", None)], [(CONNECTION, None)])),
    _alter("of an empty address", ([("ip", "")], [(CONNECTION, 2e9)])),
    _alter("of an address of IPv6", ([("ip", "fe80::1")], [(CONNECTION, 2e9)])),
    _alter("of an address of IPv6 no more", ([("ip", "fe80::1")], [(CONNECTION, None)])),
    _alter("no change", ([C], []), before=_BEFORE),
    _alter("a further key", ([C], [(REQUEST, 1e9)]), before=_BEFORE),
    _alter("another value", ([C], [(PRODUCE, 2 * MUCH)]), before=_BEFORE),
    _alter("the same value", ([C], [(PRODUCE, MUCH)]), before=_BEFORE),
    _alter("removed", ([C], [(PRODUCE, None)]), before=_BEFORE),
    _alter("all removed", ([C], [(PRODUCE, None), (FETCH, None)]), before=_BEFORE),
    _alter("what is not there removed", ([C], [(REQUEST, None)]), before=_BEFORE),
    _alter("what cannot be there removed", ([C], [("nonsense", None), (CONNECTION, None)]), before=_BEFORE),
    _alter("one of two wrong", ([C], [(PRODUCE, 3 * MUCH), (FETCH, -1.0)]), before=_BEFORE),
    _alter("a key twice", ([C], [(PRODUCE, 3 * MUCH), (PRODUCE, 4 * MUCH)]), before=_BEFORE),
    _alter("a key set and removed", ([C], [(PRODUCE, 3 * MUCH), (PRODUCE, None)]), before=_BEFORE),
    _alter("an entity twice", ([C], [(PRODUCE, 3 * MUCH)]), ([C], [(FETCH, 4 * MUCH)]), before=_BEFORE),
    _alter("an entity twice, wrong at first", ([C], [(PRODUCE, -1.0)]), ([C], [(FETCH, 4e14)])),
    _alter("two entities", ([C], [(PRODUCE, MUCH)]), ([U], [(FETCH, MUCH)])),
    _alter("two entities, one wrong", ([C], [(PRODUCE, -1.0)]), ([U], [(FETCH, MUCH)])),
    _alter("two entities, one unknown", ([("group", "g")], [(PRODUCE, 1.0)]), ([U], [(FETCH, MUCH)])),
    _alter("nothing at all"),
    _alter("only checked", ([C], [(PRODUCE, MUCH)]), dry=True),
    _alter("only checked, removed", ([C], [(PRODUCE, None)]), dry=True, before=_BEFORE),
    _alter("only checked and wrong", ([C], [(PRODUCE, 0.0)]), dry=True),
    _alter("only checked, v0", ([C], [(PRODUCE, MUCH)]), dry=True, version=0),
]

_THERE = (
    # A topic is heard of after them, so that they are.
    _set(
        ([C], [(PRODUCE, MUCH)]),
        ([U], [(FETCH, MUCH)]),
        ([C, U], [(PRODUCE, 2 * MUCH), (REQUEST, 1e9)]),
        ([("client-id", None), U], [(PRODUCE, 3 * MUCH)]),
        ([C, ("user", None)], [(PRODUCE, 4 * MUCH)]),
        ([("user", "{c}")], [(MUTATION, 1e9)]),
    ),
)


def _describe(
    name: str, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Exchange:
    call = described(*components, strict=strict, version=version)
    tidy = Call(
        ALTER,
        1,
        altering(
            *[
                (parts, [(key, None) for key in _KEYS[:4]])
                for parts in ([C], [U], [C, U], [("client-id", None), U], [C, ("user", None)])
            ]
        ),
    )
    title = f"describe quotas: {name}{', strictly' if strict else ''}, v{version}"
    return Exchange(title, DESCRIBE, version, call.request, (*_THERE, Create()), [tidy])


_RIGHT_COMPONENTS: Final[Mapping[str, Sequence[tuple[str, int, str | None]]]] = {
    "of a client id": [("client-id", EXACT, "{c}")],
    "of a user": [("user", EXACT, "{u}")],
    "of both": [("client-id", EXACT, "{c}"), ("user", EXACT, "{u}")],
    "of a user's default client id": [("client-id", DEFAULT, None), ("user", EXACT, "{u}")],
    "of any client id of a user": [("client-id", ANY, None), ("user", EXACT, "{u}")],
    "of a client id of any user": [("client-id", EXACT, "{c}"), ("user", ANY, None)],
    "of a client id of the default user": [("client-id", EXACT, "{c}"), ("user", DEFAULT, None)],
    "of any client id": [("client-id", ANY, None)],
    "of any user": [("user", ANY, None)],
    "of all": [],
    "of a client id that has none": [("client-id", EXACT, "{d}")],
    "of an empty client id": [("client-id", EXACT, "")],
}

_WRONG_COMPONENTS: Final[Mapping[str, Sequence[tuple[str, int, str | None]]]] = {
    "an empty type": [("", ANY, None)],
    "an unknown type": [("group", ANY, None)],
    "a type twice": [("user", ANY, None), ("user", EXACT, "{u}")],
    "exactly null": [("user", EXACT, None)],
    "the default of a name": [("user", DEFAULT, "{u}")],
    "any of a name": [("user", ANY, "{u}")],
    "an unknown match type": [("user", 3, None)],
    "a negative match type": [("user", -1, "{u}")],
    "address and user": [("ip", ANY, None), ("user", ANY, None)],
    "address and client id": [("client-id", EXACT, "{c}"), ("ip", EXACT, "10.1.2.3")],
    "wrong twice": [("user", 3, None), ("", ANY, None)],
    "an address without any": [("ip", EXACT, "10.9.9.9")],
}

_DESCRIBE = [
    *(
        _describe(name, *components, strict=strict, version=version)
        for version, strict in ((1, False), (1, True), (0, False))
        for name, components in _RIGHT_COMPONENTS.items()
    ),
    *(_describe(name, *components) for name, components in _WRONG_COMPONENTS.items()),
]

_BROKEN = [
    Exchange("alter quotas: cut short", ALTER, 1, Cut(altering(([C], [(PRODUCE, 1.0)])), 3)),
    Exchange(
        "alter quotas: bytes after the end", ALTER, 1, Appended(altering(([C], [(PRODUCE, MUCH)])), b"\0\0")
    ),
    Exchange("alter quotas: a huge array", ALTER, 0, Body(i32(2**31 - 1))),
    Exchange("alter quotas: a negative array", ALTER, 0, Body(i32(-2) + b"\0")),
    Exchange("alter quotas: a null array", ALTER, 0, Body(i32(-1) + b"\0")),
    Exchange(
        "alter quotas: a null key",
        ALTER,
        0,
        Body(i32(1) + i32(0) + i32(1) + i16(-1) + struct.pack(">d", 1.0) + b"\0\0"),
    ),
    Exchange(
        "describe quotas: cut short",
        DESCRIBE,
        1,
        Cut(DescribeClientQuotasRequest([ComponentData("user", EXACT, "u")]), 2),
    ),
    Exchange("describe quotas: a huge array", DESCRIBE, 0, Body(i32(2**31 - 1))),
    Exchange("describe quotas: a null array", DESCRIBE, 0, Body(i32(-1) + b"\0")),
    Exchange("describe quotas: an empty body", DESCRIBE, 1, Body(b"")),
]

EXCHANGES = [*_ALTER, *_DESCRIBE, *_BROKEN]
