"""DescribeAcls, CreateAcls and DeleteAcls, 1-3: of a cluster without an authorizer."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_acls import AclCreation, CreateAclsRequest
from gateway.wire.messages.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from gateway.wire.messages.generated.describe_acls import DescribeAclsRequest
from tests.differential.exchange import Appended, Body, Cut, Exchange

DESCRIBE, CREATE, DELETE = ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS
NAMES: Final = {DESCRIBE: "describe acls", CREATE: "create acls", DELETE: "delete acls"}
VERSIONS: Final = (1, 2, 3)
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3
ANY, MATCH = 1, 2
ODD_ELEMENTS: Final = (
    ("resource type", 0),
    ("resource type", 1),
    ("resource type", 7),
    ("resource type", 77),
    ("resource type", -1),
    ("pattern type", 0),
    ("pattern type", 1),
    ("pattern type", 2),
    ("pattern type", 4),
    ("pattern type", 77),
    ("operation", 0),
    ("operation", 1),
    ("operation", 15),
    ("operation", 77),
    ("permission type", 0),
    ("permission type", 1),
    ("permission type", 77),
)


def creation(
    resource: int = TOPIC,
    name: str = "{t}",
    pattern: int = LITERAL,
    principal: str = "User:a",
    host: str = "*",
    operation: int = READ,
    permission: int = ALLOW,
) -> AclCreation:
    return AclCreation(resource, name, pattern, principal, host, operation, permission)


def matching(
    kind: Any,
    resource: int = ANY,
    name: str | None = None,
    pattern: int = ANY,
    principal: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> Any:
    """A filter of that kind, which matches all but what is given."""
    return kind(resource, name, pattern, principal, host, operation, permission)


describe = partial(matching, DescribeAclsRequest)
to_delete = partial(matching, DeleteAclsFilter)


def _odd(api: ApiKey, element: str, value: int) -> Any:
    given: dict[str, Any] = {element.partition(" ")[0]: value}
    if api is DESCRIBE:
        return describe(**given)
    if api is CREATE:
        return CreateAclsRequest([creation(), creation(**given)])
    return DeleteAclsRequest([to_delete(), to_delete(**given)])


def _exchanges() -> Iterator[Exchange]:
    usual = {
        DESCRIBE: describe(),
        CREATE: CreateAclsRequest([creation()]),
        DELETE: DeleteAclsRequest([to_delete()]),
    }
    for api, name in NAMES.items():
        for v in VERSIONS:
            yield Exchange(f"{name}: v{v}", api, v, usual[api])
            yield Exchange(f"{name}: an empty body, v{v}", api, v, Body(b""))
        for element, value in ODD_ELEMENTS:
            yield Exchange(f"{name}: {element} {value}", api, 3, _odd(api, element, value))
        for v in (1, 3):
            yield Exchange(f"{name}: cut, v{v}", api, v, Cut(usual[api], 1))
            yield Exchange(f"{name}: bytes after the message, v{v}", api, v, Appended(usual[api], b"more"))
    for v in VERSIONS:
        whole = describe(TOPIC, "{t}", MATCH, "User:a", "*", READ, ALLOW)
        yield Exchange(f"describe acls: of a topic, v{v}", DESCRIBE, v, whole)
        yield Exchange(f"create acls: none, v{v}", CREATE, v, CreateAclsRequest())
        yield Exchange(f"delete acls: none, v{v}", DELETE, v, DeleteAclsRequest())
    several = [creation(name="{t}"), creation(name=""), creation(principal="nobody"), creation(host="")]
    yield Exchange("create acls: several", CREATE, 3, CreateAclsRequest(several))
    yield Exchange("create acls: one twice", CREATE, 2, CreateAclsRequest([creation(), creation()]))
    filters = [to_delete(name="{t}"), to_delete(principal="User:a"), to_delete(), to_delete()]
    yield Exchange("delete acls: several", DELETE, 3, DeleteAclsRequest(filters))


EXCHANGES: list[Exchange] = list(_exchanges())
