"""The cases of the pipeline in the report: all of them, and next to figures that were measured before."""

from pathlib import Path

import pytest

from bench.goals import GOALS
from bench.pipeline import NAMES
from bench.proc import parse_cpu_ticks
from bench.report import write_report
from bench.results import DRAGOMAN, Results
from bench.run import NAMES as ALL_NAMES
from bench.run import parse

STAT = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3000 4000 0 0"


def test_each_case_of_the_pipeline_can_be_selected_and_each_goal_is_of_one() -> None:
    with_goals = {name.partition(".")[0] for name in GOALS if name.startswith("pipeline_")}
    assert with_goals <= set(NAMES)
    assert set(NAMES) <= set(ALL_NAMES)


@pytest.mark.parametrize("words", [["--page", "far"], ["--page", "far", "--quick"], ["--page", "../far"]])
def test_a_page_of_its_own_is_for_whole_runs_of_some_cases(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words if "--quick" not in words else [*words, "--only", "far"])
    assert parse(["--page", "far", "--only", "far"]).page == "far"


def test_a_page_shows_what_was_measured_and_nothing_of_other_cases(tmp_path: Path) -> None:
    results = Results()
    results.add("pipeline_local", DRAGOMAN, {"mb_s": 7.0, "find_p99_ms_before": 2.0})
    results.add("pipeline_latency", DRAGOMAN, {"ack_p99_ratio": 1.5})
    written = write_report(tmp_path, results, {}, {"cases": "pipeline"}, "pipeline")
    text = written.read_text()
    assert written == tmp_path / "performance-pipeline.md"
    assert "| pipeline_local.find_p99_ms_before | ms | 2 |" in text
    assert "| pipeline_latency.ack_p99_ratio | x | 1.5 | <= 2 | yes |" in text
    assert "(performance/pipeline/throughput.svg)" in text and "latency.svg" not in text
    assert "Merging is a job" in text and "Far stores" not in text and "Kafka runs" not in text
    assert {path.name for path in (tmp_path / "performance/pipeline").iterdir()} == {
        "results.json",
        "throughput.svg",
    }


def test_the_whole_report_links_the_pages_next_to_it(tmp_path: Path) -> None:
    results = Results()
    results.add("single", DRAGOMAN, {"requests_s": 1.0})
    write_report(tmp_path, results, {}, {}, "far")
    assert "[far](performance-far.md)" in write_report(tmp_path, results, {}, {}).read_text()


def test_the_cpu_of_a_process_alone_is_without_that_of_its_children() -> None:
    assert parse_cpu_ticks(STAT) == 7_120
    assert parse_cpu_ticks(STAT, (11, 12)) == 120
