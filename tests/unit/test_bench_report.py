"""The bench's table, its Markdown and its plots."""

import json
from xml.etree import ElementTree

from bench.load.payloads import POOL, expected_crcs, payload_pool, records_in
from bench.plot import label, plots
from bench.report import as_json, cells, markdown, number, spread
from bench.results import DRAGOMAN, KAFKA, Results
from bench.stats import Summary


def some_results() -> Results:
    results = Results()
    for kafka, dragoman in ((2.0, 1.0), (3.0, 2.5), (2.5, 1.5)):
        results.add("produce_1k_p6", KAFKA, {"cpu_s_gb": kafka})
        results.add("produce_1k_p6", DRAGOMAN, {"cpu_s_gb": dragoman})
    results.add("growth_runs", DRAGOMAN, {"cpu_s_gb_10000": 1.0, "growth_1000000": 1.3})
    results.others_percent += [5.0, 7.0]
    return results


def test_a_row_shows_medians_spread_ratio_and_goal() -> None:
    line = next(some_results().lines())
    assert cells(line) == (
        "produce_1k_p6.cpu_s_gb",
        "CPU s/GB",
        "2.5 [2 - 3]",
        "1.5 [1 - 2.5]",
        "0.60x",
        "<= 0.85x",
        "yes",
    )


def test_a_missed_goal_and_an_absent_server_are_plain_to_see() -> None:
    missed = list(some_results().lines())[-1]
    assert cells(missed) == ("growth_runs.growth_1000000", "x", "", "1.3", "", "<= 1.2", "NO")


def test_numbers_keep_three_digits_and_one_round_has_no_spread() -> None:
    assert [number(value) for value in (0.12345, 12.345, 123.45, 12345.0)] == [
        "0.123",
        "12.3",
        "123",
        "12,345",
    ]
    assert spread(Summary(1.0, 1.0, 1.0, 1)) == "1"


def test_the_markdown_holds_every_figure_the_noise_and_the_plots() -> None:
    text = markdown(some_results(), {"processor": "2 x some"}, {"rounds": 3})
    for words in (
        "| produce_1k_p6.cpu_s_gb |",
        "| processor | 2 x some |",
        "| rounds | 3 |",
        "median; 5 to 7 %",
    ):
        assert words in text
    assert "performance/cpu.svg" in text and "performance/latency.svg" not in text


def test_the_json_holds_every_round() -> None:
    document = json.loads(json.dumps(as_json(some_results(), {}, {})))
    assert document["figures"][0]["kafka"] == [2.0, 3.0, 2.5]
    assert document["figures"][0]["met"] is True


def test_a_plot_is_well_formed_and_draws_longer_bars_for_more() -> None:
    (cpu, runs) = plots(list(some_results().lines()))
    bars = [
        float(rect.attrib["width"])
        for rect in ElementTree.fromstring(cpu.svg()).iter("{http://www.w3.org/2000/svg}rect")
        if rect.attrib.get("height") == "12"
    ]
    assert runs.file == "growth-runs.svg"
    assert len(bars) == 3 and bars[0] > bars[1] > bars[2] > 0


def test_plots_name_what_differs() -> None:
    assert label("produce_1k_p6.cpu_s_gb") == "produce 1k p6"
    assert label("growth_runs.cpu_s_gb_10000") == "growth runs 10,000"
    assert label("latency.ack_p50_ms") == "ack p50"
    assert label("group_10.cpu_cycle_ms") == "10 members, cpu cycle"


def test_records_are_shared_out_wholly_and_the_checksum_knows_content_and_order() -> None:
    pool = payload_pool(16)
    assert len(set(pool)) == POOL
    assert sum(records_in(partition, 100, 7) for partition in range(7)) == 100
    crcs = expected_crcs(pool, 100, 2)
    assert crcs[0] != crcs[1]
    assert expected_crcs(pool[::-1], 100, 2) != crcs
    assert expected_crcs(pool, 99, 2)[0] == crcs[0] and expected_crcs(pool, 99, 2)[1] != crcs[1]
