"""The bench's arithmetic: medians, ratios, percentiles, goals, growth, what is selected."""

from xml.etree import ElementTree

import pytest

from bench.cases import CASES
from bench.flames import flame_svg
from bench.goals import GOALS, Goal, Of
from bench.memory import MAX_BYTES, bytes_to_touch
from bench.proc import (
    MachineCpu,
    kernel_seconds_between,
    others_percent,
    parse_cpu_ticks,
    parse_machine_cpu,
)
from bench.profile import read_folded, shares
from bench.results import BESIDE_SYNCED, DRAGOMAN, KAFKA, Results, growth, selected, unit_of
from bench.stats import median_ratio, percentile, summarize


def test_a_summary_holds_the_median_and_the_extremes() -> None:
    summary = summarize([3.0, 1.0, 2.0, 10.0])
    assert (summary.median, summary.low, summary.high, summary.rounds) == (2.5, 1.0, 10.0, 4)


def test_nothing_measured_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        summarize([])


def test_ratios_are_taken_round_by_round() -> None:
    # A disturbed second round slows both sides; the ratio of medians would say 1.0 / 2.0 = 0.5.
    assert median_ratio([1.0, 9.0, 1.0], [1.0, 10.0, 2.0]) == 0.9


def test_there_is_no_ratio_to_what_was_not_measured_or_is_zero() -> None:
    assert median_ratio([1.0], []) is None
    assert median_ratio([1.0], [0.0]) is None


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0), (0.5, 1.0)])
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(i) for i in range(100, 0, -1)], percent) == expected


def test_the_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([], 50)


def test_a_goal_is_met_on_its_bound_and_missed_beyond() -> None:
    most, least = Goal(Of.VALUE, at_most=1.5), Goal(Of.RATIO, at_least=0.8)
    assert most.is_met(1.5) and not most.is_met(1.6)
    assert least.is_met(0.8) and not least.is_met(0.7)
    assert (str(most), str(least)) == ("<= 1.5", ">= 0.8x")


def test_a_ratio_goal_judges_the_ratio_and_a_value_goal_the_value() -> None:
    results = Results()
    results.add("produce_1k_p6", KAFKA, {"cpu_s_gb": 2.0})
    results.add("produce_1k_p6", DRAGOMAN, {"cpu_s_gb": 1.6})
    results.add("latency", KAFKA, {"ack_p50_ms": 9.0})
    results.add("latency", DRAGOMAN, {"ack_p50_ms": 1.8})
    produce, latency = results.lines()
    assert produce.ratio == 0.8 and produce.is_met is True
    assert latency.ratio == pytest.approx(0.2) and latency.is_met is False


def test_a_figure_without_a_goal_or_without_a_value_is_neither_met_nor_missed() -> None:
    results = Results()
    results.add("catchup_1k_p1", DRAGOMAN, {"mb_s": 100.0})
    results.add("produce_1k_p6", DRAGOMAN, {"cpu_s_gb": 1.0})
    assert [line.is_met for line in results.lines()] == [None, None]


def test_every_goal_has_a_unit_that_is_known() -> None:
    growths = {figure for figure in GOALS if ".growth_" in figure}
    ratios = {"far_tail.ack_p99_p50"} | {figure for figure in GOALS if figure.endswith("_ratio")}
    ratios |= {figure for figure in GOALS if figure.endswith(".cpu_to_plain")}
    assert {figure for figure in GOALS if unit_of(figure) == "x"} == growths | ratios


def test_what_has_a_goal_beside_a_kafka_that_syncs_is_measured_beside_it() -> None:
    measured = {f"{name}{BESIDE_SYNCED}" for case in CASES for name in case.acked}
    wanted = {figure.partition(".")[0] for figure in GOALS}
    assert {case for case in wanted if case.endswith(BESIDE_SYNCED)} <= measured


@pytest.mark.parametrize(
    ("figure", "unit"),
    [
        ("produce_1k_p6.mb_s", "MB/s"),
        ("produce_1k_p6.peak_mb", "MB"),
        ("growth_runs.cpu_s_gb_10000", "CPU s/GB"),
        ("startup.ready_s", "s"),
        ("ledger.apply_us_batch", "us/batch"),
        ("scattered.cpu_us_batch", "CPU us/batch"),
        ("ledger.find_p99_ms", "ms"),
        ("group_commits.commits_s", "commits/s"),
        ("group_commits.cpu_us_commit", "CPU us/commit"),
        ("transactions_10.transactions_s", "transactions/s"),
        ("transactions_10.system_cpu_us_transaction", "CPU us/transaction"),
        ("group_100.rebalance_ms", "ms"),
        ("produce_1k_p6_synced.system_cpu_s_gb", "CPU s/GB"),
        ("latency.system_cpu_percent", "% of a core"),
        ("catchup_1k_p6_tls.cpu_to_plain", "x"),
    ],
)
def test_units_follow_the_names_of_figures(figure: str, unit: str) -> None:
    assert unit_of(figure) == unit


def test_growth_is_the_cost_relative_to_the_smallest_size() -> None:
    assert growth({1_000: 3.0, 10: 2.0}) == {"growth_1000": 1.5}


def test_a_case_is_selected_by_name_or_by_the_beginning_of_names() -> None:
    known = ["produce_1k_p1", "produce_1k_p6", "startup", "startup_runs"]
    assert selected(["produce_1k_p6"], [], known)
    assert selected(["produce_1k_p6", "catchup_1k_p6"], ["produce_1k"], known)
    assert selected(["startup"], ["startup"], known)
    assert not selected(["startup_runs"], ["startup"], known)
    assert not selected(["startup"], ["produce"], known)


def test_cpu_ticks_are_read_after_a_name_with_spaces_and_brackets() -> None:
    fields = ["S", *["0"] * 10, "10", "20", "3", "4", *["9"] * 30]
    assert parse_cpu_ticks(f"17 (a (b) c) {' '.join(fields)}") == 37


def test_others_have_what_is_busy_and_not_ours() -> None:
    before = parse_machine_cpu("cpu  100 0 100 700 100 0 0 0 50 0")
    assert before.busy_s == pytest.approx(before.idle_s / 4)
    after = MachineCpu(before.busy_s + 6.0, before.idle_s + 4.0)
    assert others_percent(before, after, [3.0, 1.0]) == pytest.approx(20.0)
    assert others_percent(before, after, [7.0]) == 0.0


def test_threads_of_the_kernel_that_begin_or_end_meanwhile_are_counted_as_far_as_known() -> None:
    before, after = {3: 1.0, 4: 2.0, 5: 7.0}, {3: 1.5, 5: 7.0, 6: 0.25}
    assert kernel_seconds_between(before, after) == 0.75
    assert kernel_seconds_between({}, {}) == 0.0


def test_memory_is_touched_up_to_a_bound_and_half_is_left_to_others() -> None:
    assert bytes_to_touch(8 << 30) == 4 << 30
    assert bytes_to_touch(1 << 40) == MAX_BYTES
    assert bytes_to_touch(0) == 0


def test_a_profile_counts_a_recursive_frame_once_a_stack() -> None:
    stacks = read_folded("main;walk;walk 3\nmain;read 1\n")
    own, whole = shares(stacks)
    assert own == {"walk": 3, "read": 1}
    assert whole == {"main": 4, "walk": 3, "read": 1}


def test_a_flame_graph_shows_frames_by_their_share_and_leaves_out_the_narrow() -> None:
    stacks = read_folded(
        "serve (cli);Runner.run (asyncio);a (gateway/a.py);b (ledger/<b>.py) 600\n"
        "Runner.run (asyncio);a (gateway/a.py) 398\n"
        "Runner.run (asyncio);narrow (x.py) 2\n"
    )
    svg = flame_svg(stacks, "A & B")
    assert "A &amp; B (1000 samples)" in svg
    assert "a (gateway/a.py) 99.8 %" in svg and "b (ledger/&lt;b&gt;.py) 60.0 %" in svg
    assert "narrow" not in svg and "serve" not in svg
    ElementTree.fromstring(svg)
