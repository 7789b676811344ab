"""docs/clients.md names the clients that are tested, and what they cannot do."""

from tests.e2e.client_kafkajs import KafkajsClient
from tests.e2e.client_kcat import KcatClient
from tests.support.versions import ROOT
from tests.support.workers import CLIENT_NAMES

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
ROWS = {
    name.strip(): limits
    for _, name, _, _, limits, _ in (row.split("|") for row in PAGE.splitlines() if row.startswith("|"))
    if name.strip() not in ("client", "---")
}


def test_every_client_of_the_tests_has_a_row() -> None:
    assert tuple(ROWS) == CLIENT_NAMES


def test_what_a_client_cannot_do_is_said_in_its_row() -> None:
    for client in (KafkajsClient, KcatClient):
        name = "kcat" if client is KcatClient else "kafkajs"
        assert all(reason in ROWS[name] for reason in client.cannot.values())
