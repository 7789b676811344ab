"""What is written down for readers is what the code does."""

import shutil
import tomllib
from pathlib import Path

import pytest

from gateway.config import SETTINGS, load_settings
from gateway.router import HANDLERS
from gateway.settings import Settings
from gateway.wire.apis import RANGES, ApiKey
from tools.file_map import BEGIN, END, file_map, first_sentence, with_file_map
from tools.print_docs import PAGES, ROOT, embedded_toml, outdated, protocol_page, settings_page


def test_the_printed_pages_are_those_of_the_code() -> None:
    assert outdated() == [], "run python tools/print_docs.py"


def test_a_page_that_was_changed_by_hand_or_is_gone_is_found(tmp_path: Path) -> None:
    for name in PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert outdated(tmp_path) == []
    (tmp_path / "docs/settings.md").write_text(settings_page() + "\n")
    (tmp_path / "docs/protocol.md").unlink()
    assert outdated(tmp_path) == ["docs/settings.md", "docs/protocol.md"]


def test_the_example_configuration_loads_and_is_the_defaults() -> None:
    assert load_settings({}, {}, ROOT / "config/embedded.toml") == Settings()


def test_the_example_configuration_has_every_setting_but_secrets() -> None:
    document = tomllib.loads(embedded_toml())
    written = {(section, key) for section, keys in _flat(document).items() for key in keys}
    wanted = {(setting.section, setting.key) for setting in SETTINGS.values() if not setting.is_secret}
    assert written == wanted


def _flat(document: dict[str, dict[str, object]]) -> dict[str, list[str]]:
    def keys(prefix: str, table: dict[str, object]) -> list[str]:
        return [
            name
            for key, value in table.items()
            for name in (keys(f"{prefix}{key}.", value) if isinstance(value, dict) else [prefix + key])
        ]

    return {section: keys("", table) for section, table in document.items()}


def test_the_settings_page_names_every_setting_with_its_environment_variable() -> None:
    rows = [line for line in settings_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(SETTINGS)
    for setting, row in zip(SETTINGS.values(), rows, strict=True):
        assert f"`{setting.name}`" in row and f"`{setting.environment_name}`" in row and setting.doc in row


@pytest.mark.parametrize("key", sorted(RANGES))
def test_the_protocol_page_has_every_api_of_kafka_once(key: ApiKey) -> None:
    served, _, missing = protocol_page().partition("## Not supported yet")
    here, there = (served, missing) if key in HANDLERS else (missing, served)
    name = "".join(word.capitalize() for word in key.name.split("_"))
    assert here.count(f"| {name} | {int(key)} |") == 1
    assert f"| {name} |" not in there


def test_the_file_map_has_every_package_and_its_modules() -> None:
    rows = file_map().splitlines()
    for package in ("gateway", "ledger", "adapters", "pipeline"):
        assert sum(row.startswith(f"| **`{package}/`** |") for row in rows) == 1
        inside = [path for path in (ROOT / package).iterdir() if path.suffix == ".py" or path.is_dir()]
        left_out = {"__init__.py", "__main__.py", "__pycache__"}
        there = {path.name + "/" * path.is_dir() for path in inside if path.name not in left_out}
        named = {row.split("`")[1].removeprefix(f"{package}/") for row in rows if f"`{package}/" in row}
        assert named - {""} == there


def test_a_module_is_named_by_its_first_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('"""Reads a.b of version 4.3\nand writes c|d. Pure: no sockets.\n\nMore of it.\n"""\n')
    assert first_sentence(file) == "Reads a.b of version 4.3 and writes c\\|d"


def test_what_is_around_the_file_map_stays() -> None:
    page = with_file_map(f"before\n{BEGIN}old\n{END}after\n")
    assert page.startswith(f"before\n{BEGIN}\n| path |") and page.endswith(f"|\n\n{END}after\n")
    assert with_file_map(page) == page
    with pytest.raises(ValueError, match="no lines"):
        with_file_map("nothing to print into\n")
