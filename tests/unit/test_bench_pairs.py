"""The bench of two revisions: which is measured first, and what the table says."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench import pairs
from bench.pairs import AFTER, BEFORE, RevisionGateway, main, parse, table_of
from bench.results import Results


def test_the_ratio_of_two_revisions_is_the_median_over_the_rounds() -> None:
    results = Results()
    for before, after in ((100.0, 101.0), (50.0, 60.0), (200.0, 198.0)):
        results.add("single", BEFORE, {"cpu_us_request": before})
        results.add("single", AFTER, {"cpu_us_request": after})
    written = StringIO()
    Console(width=130, file=written).print(table_of(results, "HEAD~3"))
    text = written.getvalue()
    assert "1.010x" in text
    assert "HEAD~3" in text


def test_a_gateway_of_a_revision_runs_the_code_of_its_own_checkout(tmp_path: Path) -> None:
    package = tmp_path / "tree" / "gateway" / "cli"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "main.py").write_text("raise SystemExit(77)")
    gateway = RevisionGateway(BEFORE, tmp_path / "tree", tmp_path / "data")
    gateway.launch()
    assert gateway.wait_for_exit() == 77


def test_a_case_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--against", "HEAD", "--only", "nonsense"])
    assert "no case begins with 'nonsense'" in capsys.readouterr().err


def test_a_revision_that_there_is_not_ends_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before gigabytes of memory are touched, which holds up all else on the machine."""
    monkeypatch.setattr(pairs, "touch_free_memory", lambda: pytest.fail("memory was touched"))
    assert main(["--against", "no-such-revision"]) == 2
