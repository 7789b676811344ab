"""Suites share `tests/support/` and nothing else."""

import re

from tests.support.suite_counts import suite_of
from tests.support.versions import ROOT

IMPORT = re.compile(r"^\s*(?:from|import) tests\.(\w+)", re.MULTILINE)


def test_no_suite_imports_from_another() -> None:
    others = {
        f"{path.relative_to(ROOT)} imports tests.{imported}"
        for path in (ROOT / "tests").rglob("*.py")
        for imported in IMPORT.findall(path.read_text("utf-8"))
        if imported not in ("support", suite_of(path.relative_to(ROOT).as_posix()))
    }
    assert not others
