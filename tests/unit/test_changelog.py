"""Fragments of the changelog are such that a release can collect them."""

import re
import tomllib

from tests.support.versions import ROOT

FRAGMENT = re.compile(r"\+[a-z0-9][a-z0-9-]*\.([a-z]+)\.md")
FRAGMENTS = sorted(path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md")


def test_a_fragment_has_a_name_and_a_type_that_the_changelog_knows() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    types = {kind["directory"] for kind in settings["type"]}
    named = {path.name: FRAGMENT.fullmatch(path.name) for path in FRAGMENTS}
    assert [name for name, match in named.items() if match is None or match[1] not in types] == []


def test_a_fragment_is_text_without_a_bullet_of_its_own() -> None:
    texts = {path.name: path.read_text("utf-8") for path in FRAGMENTS}
    assert [
        name for name, text in texts.items() if not text.strip() or text.startswith(("-", "*", "#"))
    ] == []


def test_a_release_is_put_where_the_changelog_says() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    assert (ROOT / settings["filename"]).read_text("utf-8").count(settings["start_string"]) == 1
