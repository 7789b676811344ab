"""Links between the pages of this repository lead to a file that is there, and to a heading in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.versions import ROOT

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "changelog.d/*.md", "tests/fixtures/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()]*\))?)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$")


def written(page: str) -> Iterator[str]:
    """The lines of a page but those of code blocks."""
    fenced = False
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


def links(page: str) -> list[str]:
    """Where a page leads to within the repository."""
    targets = (target for line in written(page) for target in LINK.findall(re.sub(r"`[^`]*`", "", line)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: str) -> set[str]:
    """The names of a page's headings, as hosts of Git repositories make them."""
    found: set[str] = set()
    for line in written(page):
        if heading := HEADING.match(line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            again = 0
            while (unique := f"{name}-{again}" if again else name) in found:
                again += 1
            found.add(unique)
    return found


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in links(page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            broken.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(file.read_text("utf-8")):
            broken.append(f"{target}: {file.name} has no such heading")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    assert broken_links(page) == []


def test_the_pages_have_links_to_look_at() -> None:
    found = {page: links(page.read_text("utf-8")) for page in PAGES}
    assert "docs/protocol.md" in found[ROOT / "README.md"]
    assert sum(map(len, found.values())) > 50


def test_headings_get_the_names_by_which_pages_are_linked() -> None:
    page = "# Disk full\n## `ledger show`, and more: a_b\n```\n# no heading\n```\n## Disk full\n"
    assert anchors(page) == {"disk-full", "ledger-show-and-more-a_b", "disk-full-1"}


def test_links_in_code_and_to_other_sites_are_not_looked_at() -> None:
    page = "[a](b.md#c) `[d](e.md)` [f](https://example.org/x)\n```\n[g](h.md)\n```\n![i](j.svg)\n"
    assert links(page) == ["b.md#c", "j.svg"]


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "page.md"
    broken.write_text("[a](nowhere.md) [b](#gone) [c](#here)\n\n# Here\n")
    assert broken_links(broken) == [
        "nowhere.md: there is no such file",
        "#gone: page.md has no such heading",
    ]
