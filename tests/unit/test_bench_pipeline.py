"""The cases of the pipeline in the report: all of them, and next to figures that were measured before."""

import pytest

from bench.goals import GOALS
from bench.pipeline import NAMES
from bench.proc import parse_cpu_ticks
from bench.report import as_json
from bench.results import DRAGOMAN, KAFKA, Results
from bench.run import NAMES as ALL_NAMES
from bench.run import parse

STAT = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3000 4000 0 0"


def figures(results: Results) -> list[str]:
    return list(results.values)


def test_each_case_of_the_pipeline_can_be_selected_and_each_goal_is_of_one() -> None:
    with_goals = {name.partition(".")[0] for name in GOALS if name.startswith("pipeline_")}
    assert with_goals <= set(NAMES)
    assert set(NAMES) <= set(ALL_NAMES)


def test_what_was_measured_replaces_the_same_cases_of_a_report_and_no_others() -> None:
    before, now = Results(), Results()
    before.add("single", KAFKA, {"requests_s": 1.0})
    before.add("single", DRAGOMAN, {"requests_s": 2.0})
    before.add("pipeline_local", DRAGOMAN, {"mb_s": 3.0, "of_before_s": 4.0})
    before.add("far_tail", DRAGOMAN, {"ack_p50_ms": 5.0})
    now.add("pipeline_spark", DRAGOMAN, {"mb_s": 6.0})
    now.add("pipeline_local", DRAGOMAN, {"mb_s": 7.0})
    now.put_under(as_json(before, {}, {}))
    expected = ["single.requests_s", "pipeline_local.mb_s", "far_tail.ack_p50_ms", "pipeline_spark.mb_s"]
    assert figures(now) == expected
    assert now.values["single.requests_s"] == {KAFKA: [1.0], DRAGOMAN: [2.0]}
    assert now.values["pipeline_local.mb_s"] == {DRAGOMAN: [7.0]}


@pytest.mark.parametrize("words", [["--update"], ["--update", "--quick", "--only", "pipeline"]])
def test_a_report_is_updated_only_by_whole_runs_of_some_cases(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert parse(["--update", "--only", "pipeline"]).update


def test_the_cpu_of_a_process_alone_is_without_that_of_its_children() -> None:
    assert parse_cpu_ticks(STAT) == 7_120
    assert parse_cpu_ticks(STAT, (11, 12)) == 120
