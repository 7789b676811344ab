"""docs/metrics.md names every metric of a gateway with its labels, and no other."""

import re
from typing import Final

from tests.process.test_admin_pages import page
from tests.process.test_topic_metrics import commit, produce
from tests.support.gateway import GatewayFactory
from tests.support.prometheus import check_metrics, documented_metrics
from tests.support.topics import create_topics

ONLY_ELSEWHERE: Final = re.compile(r"dragoman_(object_reads?|metadata)_")
"""Of far stores."""
BUILT_IN: Final = {"le"}


def served(text: str) -> dict[str, set[str]]:
    """The labels of each family that has samples, and of each that has none yet an empty set."""
    families = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    found: dict[str, set[str]] = {name: set() for name in families}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, labels = line.partition(" ")[0].partition("{")
            if name not in families:
                name = re.sub(r"_(bucket|sum|count)$", "", name)
            found[name] |= set(re.findall(r'([a-z]+)="', labels)) - BUILT_IN
    return found


def test_every_metric_is_documented_with_its_labels(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(["--set", "metrics.topics=true"])
    gateway.start()
    create_topics(gateway.bootstrap, {"orders": 1})
    produce(gateway, "orders", 1)
    commit(gateway, "billing", "orders", 1)
    text = page(gateway, "/metrics")[1]
    check_metrics(text)
    has, says = served(text), documented_metrics()
    assert has.keys() - says.keys() == set()
    assert {name for name in says.keys() - has.keys() if not ONLY_ELSEWHERE.match(name)} == set()
    assert {name: labels for name, labels in has.items() if labels and labels != says[name]} == {}
