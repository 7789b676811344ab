"""The table at the end of a run, tested by running pytest on a small tree of its own."""

import pytest

from tests.support.suite_counts import (
    AllowedSkip,
    Skip,
    failure_lines,
    read_allowed_skips,
    read_counts,
    suite_of,
)

SUITES = {
    "tests/unit/test_a.py": "def test_one(): pass\n\ndef test_two(): assert False\n",
    "tests/e2e/test_b.py": """
import pytest

@pytest.mark.skip(reason="no JDK on PATH")
def test_java(): pass

def test_skips_in_the_middle(): pytest.skip("no mvn on PATH")

def test_runs(): pass
""",
}
INI = "[pytest]\nmarkers =\n    full: long\n"


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> pytest.Pytester:
    for variable in ("CI", "DRAGOMAN_TEST_FULL", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    pytester.makefile(".ini", pytest=INI)
    return pytester


def write(pytester: pytest.Pytester, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    # Python puts the working directory before PYTHONPATH, so this tree's `tests` must not shadow ours:
    # it has no __init__.py, and a regular package wins over it.
    return pytester.runpytest_subprocess(
        "-p", "tests.support.suite_table", "--import-mode=importlib", "-p", "no:cacheprovider", *options
    )


def only_skips() -> dict[str, str]:
    return {"tests/e2e/test_b.py": SUITES["tests/e2e/test_b.py"]}


def test_the_table_counts_each_suite_and_names_the_reasons(project: pytest.Pytester) -> None:
    write(project, SUITES)
    result = run(project)
    result.stdout.fnmatch_lines(
        [
            "suite *run *passed *failed *skipped *seconds *reason",
            "e2e  *1 *1 *0 *2 *0  1 x no JDK on PATH; 1 x no mvn on PATH",
            "unit *2 *1 *1 *0 *0",
            "all  *3 *2 *1 *2 *0",
            "*1 failed, 2 passed, 2 skipped in *",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("workers", [0, 1])
def test_the_counts_say_what_failed_and_what_ended_the_run(project: pytest.Pytester, workers: int) -> None:
    """pytest lists no failures of a run that it ends itself; without a worker it would go on, and pass."""
    breaks = "def pytest_runtest_protocol(item):\n    if item.name == 'test_last': raise OSError('full')\n"
    write(project, SUITES | {"conftest.py": breaks, "tests/unit/test_z.py": "def test_last(): pass\n"})
    result = run(project, "--suite-counts=counts.json", *(["-n", str(workers)] if workers else []))
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    lines = list(failure_lines(read_counts((project.path / "counts.json").read_text())))
    assert "tests/unit/test_a.py::test_two: tests/unit/test_a.py:3: AssertionError" in lines
    assert any(line.startswith("pytest: ") and "full" in line for line in lines)


def test_a_skip_is_no_failure_outside_ci(project: pytest.Pytester) -> None:
    write(project, only_skips())
    assert run(project).ret == pytest.ExitCode.OK


def test_a_skip_that_is_not_allowed_fails_in_ci(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    write(project, only_skips() | {"tests/allowed_skips.txt": "tests/e2e/test_b.py: no JDK\n"})
    result = run(project)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*skips that CI does not allow*", "tests/e2e/test_b.py::test_skips_in_the_middle: no mvn on PATH"]
    )
    result.stdout.no_fnmatch_line("*test_java: no JDK*")


def test_skips_that_are_all_allowed_pass_in_ci(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    write(
        project, only_skips() | {"tests/allowed_skips.txt": "# why\ntests/e2e/: no JDK\ntests/e2e/: no mvn\n"}
    )
    assert run(project).ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    "body",
    [
        "import pytest\npytest.importorskip('no_such_module_at_all')\n",
        "import pytest\n@pytest.mark.xfail(reason='later')\ndef test_a(): assert False\n",
    ],
    ids=["module skipped as a whole", "expected failure"],
)
def test_what_proves_nothing_fails_in_ci_too(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setenv("CI", "true")
    write(project, {"tests/unit/test_c.py": body, "tests/unit/test_d.py": "def test_runs(): pass\n"})
    assert run(project).ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(("requested", "passed", "deselected"), [("0", 1, 1), ("1", 2, 0)])
def test_long_tests_run_only_when_requested(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, requested: str, passed: int, deselected: int
) -> None:
    monkeypatch.setenv("DRAGOMAN_TEST_FULL", requested)
    body = "import pytest\n@pytest.mark.full\ndef test_long(): pass\n\ndef test_short(): pass\n"
    write(project, {"tests/unit/test_e.py": body})
    result = run(project)
    result.assert_outcomes(passed=passed, deselected=deselected)
    assert ("1 more in make test-full" in result.stdout.str()) is bool(deselected)


def test_an_allowed_skip_without_a_reason_stops_the_run(project: pytest.Pytester) -> None:
    write(project, only_skips() | {"tests/allowed_skips.txt": "tests/e2e/\n"})
    assert run(project).ret == pytest.ExitCode.USAGE_ERROR


def test_an_allowed_skip_is_a_prefix_of_test_and_reason() -> None:
    (line,) = read_allowed_skips("tests/e2e/test_b.py::test_java: no JDK\n\n# a comment\n")
    assert line == AllowedSkip("tests/e2e/test_b.py::test_java", "no JDK")
    assert line.covers(Skip("tests/e2e/test_b.py::test_java[a]", "no JDK on PATH"))
    assert not line.covers(Skip("tests/e2e/test_b.py::test_other", "no JDK on PATH"))
    assert not line.covers(Skip("tests/e2e/test_b.py::test_java", "broken"))


def test_a_suite_is_the_directory_below_tests() -> None:
    assert suite_of("tests/unit/test_a.py::test_b[x/y]") == "unit"
    assert suite_of("tests/unit/deeper/test_a.py::test_b") == "unit"
    assert suite_of("tests/test_top.py::test_b") == "tests"
