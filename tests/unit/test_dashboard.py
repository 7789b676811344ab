"""The dashboard and the alert rules name metrics and labels that a gateway has.

docs/metrics.md has all of them; `tests/process/test_metrics_page.py` compares it with a gateway.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.prometheus import documented_metrics, promtool
from tests.support.versions import ROOT

DASHBOARD: Final = ROOT / "deploy/grafana/dragoman.json"
RULES: Final = ROOT / "deploy/prometheus/alerts.yml"
METRIC: Final = re.compile(r"\b(?:dragoman|process)_[a-z_]+")
LABELS: Final = re.compile(r"(?:\bby|\bon) \(([^)]*)\)|([a-z_]+)(?:=~|!~|!=|=)\"")
OF_PROMETHEUS: Final = {"instance", "job", "le"}
SUFFIX: Final = re.compile(r"_(bucket|sum|count)$")
VARIABLES: Final = ("datasource", "instance", "group", "topic")


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return board


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def labels_in(expression: str) -> set[str]:
    found = set()
    for several, one in LABELS.findall(expression):
        found |= {label.strip() for label in (several or one).split(",")}
    return found


def wrong_names(expression: str) -> set[str]:
    """Metrics that no gateway has, and labels that none of its metrics in the expression has."""
    known = documented_metrics()
    metrics = {SUFFIX.sub("", name) for name in METRIC.findall(expression)}
    labels = {label for name in metrics & known.keys() for label in known[name]}
    return (metrics - known.keys()) | (labels_in(expression) - labels - OF_PROMETHEUS)


def test_every_expression_of_the_dashboard_names_metrics_and_labels_that_exist() -> None:
    found = list(expressions())
    assert len(found) > 40
    assert {expression: wrong for expression in found if (wrong := wrong_names(expression))} == {}


def test_every_rule_names_metrics_and_labels_that_exist() -> None:
    assert {rule["alert"]: wrong for rule in rules() if (wrong := wrong_names(rule["expr"]))} == {}


def test_a_wrong_name_is_found() -> None:
    assert wrong_names('sum by (topic) (dragoman_connections{api="x"}) + dragoman_no_such') == {
        "topic",
        "api",
        "dragoman_no_such",
    }


def test_every_expression_of_the_dashboard_is_right(tmp_path: Path) -> None:
    filled = []
    for expression in expressions():
        text = expression.replace("$__rate_interval", "5m")
        filled.append(re.sub(r"\$(instance|group|topic)\b", ".*", text))
    named = [{"record": f"expression:{n}", "expr": text} for n, text in enumerate(filled)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": named}]}))
    assert f"{len(named)} rules found" in promtool(["check", "rules", "rules.yml"], directory=tmp_path)


def test_the_panels_have_titles_and_units_and_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert panel["title"] and place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    variables = dashboard()["templating"]["list"]
    assert tuple(variable["name"] for variable in variables) == VARIABLES
    queries = [variable["query"]["query"] for variable in variables[1:]]
    assert [query for query in queries if METRIC.findall(query)[0] not in documented_metrics()] == []


def test_every_alert_says_how_grave_it_is_what_it_found_and_where_to_go_on() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
        assert f"| `{rule['alert']}` |" in page
