"""What `make test` runs, tested with a pytest that notes how it is called, and once with the real one."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.run_suites import PARTS, main, run_parts
from tests.support.suite_counts import Skip, SuiteCount, failure, written


class NotedPytest:
    """Returns `codes` in turn; `counts` are those of each part."""

    def __init__(self, codes: Sequence[int] = (0, 0), counts: Sequence[SuiteCount] = ()) -> None:
        self.calls: list[list[str]] = []
        self._codes = list(codes)
        self._counts = list(counts)

    def __call__(self, arguments: Sequence[str]) -> int:
        self.calls.append(list(arguments))
        if self._counts:
            (path,) = [word.partition("=")[2] for word in arguments if word.startswith("--suite-counts=")]
            Path(path).write_text(written({"unit": self._counts.pop(0)}))
        return self._codes.pop(0)


def calls(*arguments: str) -> list[str]:
    """Of each call of pytest, without the file for its counts."""
    noted = NotedPytest()
    assert main(arguments, noted) == 0
    return [" ".join(word for word in call if not word.startswith("--suite-counts=")) for call in noted.calls]


def test_what_may_share_the_machine_runs_in_two_processes_and_the_rest_after_it() -> None:
    assert calls() == ["-m not serial -n 2 --durations 40", "-m serial -n 0"]


def test_options_that_choose_nothing_go_to_both_parts() -> None:
    assert calls("-x", "-n", "4", "--durations=5") == [
        "-m not serial -n 2 --durations 40 -x -n 4 --durations=5",
        "-m serial -x -n 4 --durations=5 -n 0",
    ]
    assert calls("--maxfail=1")[0] == "-m not serial -n 2 --durations 40 --maxfail=1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["tests/unit/test_support_run_suites.py"],
        ["tests/unit/test_support_run_suites.py::test_a", "-x"],
        ["-k", "closed"],
        ["-kclosed"],
        ["-m", "full"],
        ["--lf"],
        ["--deselect=tests/unit/test_a.py::test_b"],
    ],
    ids=" ".join,
)
def test_a_choice_of_tests_is_one_run_of_these_alone(arguments: list[str]) -> None:
    assert calls(*arguments) == [" ".join(arguments)]


def test_the_unit_tests_alone_are_those_that_do_not_judge_time() -> None:
    assert calls("--unit") == ["-m not serial -n 2 --durations 40 tests/unit"]
    assert calls("--unit", "-k", "closed") == ["tests/unit -k closed"]
    assert calls("--unit", "tests/wire") == ["tests/wire"]


def test_the_first_line_says_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRAGOMAN_TEST_FULL", raising=False)
    main([], NotedPytest())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Tests: about an hour on 2 cores, in 2 parts."
    assert [line[:12] for line in lines[1:3]] == ["Part 1 of 2:", "Part 2 of 2:"]


@pytest.mark.parametrize(
    ("codes", "code"), [((0, 0), 0), ((1, 0), 1), ((0, 1), 1), ((0, 5), 5), ((2,), 2), ((5,), 5), ((4,), 4)]
)
def test_it_fails_when_a_part_does_and_continues_only_after_tests(codes: tuple[int, ...], code: int) -> None:
    noted = NotedPytest(codes)
    assert run_parts(PARTS, [], noted) == code
    assert len(noted.calls) == len(codes)


def test_one_table_adds_the_parts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    skip = Skip("tests/unit/test_a.py", "no sail in the wind")
    first = SuiteCount(passed=3, left_for_full=2, seconds=1.5, skips=[skip])
    second = SuiteCount(passed=1, failed=1, seconds=2.6, skips=[skip, Skip("tests/unit/test_b.py", "no oar")])
    run_parts(PARTS, [], NotedPytest((0, 1), [first, second]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split() == ["suite", "run", "passed", "failed", "skipped", "seconds", "reason"]
    reason = "1 x no sail in the wind; 1 x no oar; 2 more in make test-full"
    assert lines[4].split(maxsplit=6) == ["unit", "5", "4", "1", "2", "4", reason]
    assert lines[5].split() == ["all", "5", "4", "1", "2", "4"]
    assert lines[7:10] == [
        "Skips that CI does not allow:",
        "tests/unit/test_a.py: no sail in the wind",
        "tests/unit/test_b.py: no oar",
    ]


def test_what_failed_is_named_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    why = "def test_a():\n>   assert 1 == 2\nE   assert 1 == 2\n\ntests/unit/test_a.py:7: AssertionError\n\n"
    first = SuiteCount(failed=1, failures=[failure("tests/unit/test_a.py::test_a", why)])
    second = SuiteCount(
        failed=50, failures=[failure(f"tests/unit/test_b.py::test_{n}", "") for n in range(50)]
    )
    run_parts(PARTS, [], NotedPytest((1, 1), [first, second]))
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index("Failed:")
    assert lines[begin + 1] == "tests/unit/test_a.py::test_a: tests/unit/test_a.py:7: AssertionError"
    assert lines[begin + 2] == "tests/unit/test_b.py::test_0: no reason"
    assert lines[begin + 41] == "and 11 more"
