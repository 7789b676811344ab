"""Each handler module begins with its API and the versions that the gateway serves."""

import importlib
import pkgutil

import pytest

from gateway import handlers
from gateway.router import HANDLERS
from gateway.wire.apis import RANGES, ApiKey

MODULES = sorted(module.name for module in pkgutil.iter_modules(handlers.__path__))


def module_of(key: ApiKey) -> str:
    return key.name.lower()


def api_of(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))


def test_the_package_holds_a_module_for_each_api_and_nothing_else() -> None:
    assert sorted(module_of(key) for key in HANDLERS) == MODULES


@pytest.mark.parametrize("key", HANDLERS, ids=module_of)
def test_the_head_of_a_module_names_its_api_and_versions(key: ApiKey) -> None:
    module = importlib.import_module(f"gateway.handlers.{module_of(key)}")
    low, high = RANGES[key]
    versions = f"v{low}" if low == high else f"v{low}-{high}"
    head = f"{api_of(module_of(key))} ({int(key)}), {versions}"
    assert (module.__doc__ or "").startswith((f"{head}.", f"{head}:"))
