"""What is said about topic configs is what the code does."""

import re
from pathlib import Path

from gateway.topics.configs import TOPIC_CONFIGS
from tools import write_topic_configs

ROOT = Path(__file__).resolve().parents[2]
RULES = ("gateway/produce", "gateway/fetch", "gateway/housekeeping", "gateway/handlers")
"""Where records are treated by the configs of their topic."""


def test_the_page_about_topic_configs_is_written_from_their_table() -> None:
    assert (ROOT / "docs" / "topic-configs.md").read_text("utf-8") == write_topic_configs.page()


def test_the_configs_said_to_have_an_effect_are_those_that_records_are_treated_by() -> None:
    sources = "\n".join(path.read_text("utf-8") for part in RULES for path in (ROOT / part).rglob("*.py"))
    read = {name for name in TOPIC_CONFIGS if re.search(rf'value\(\s*"{re.escape(name)}"', sources)}
    assert read == {config.name for config in TOPIC_CONFIGS.values() if config.has_effect}


def test_every_config_without_an_effect_says_so_to_those_who_ask_for_its_description() -> None:
    for config in TOPIC_CONFIGS.values():
        assert config.doc.startswith(write_topic_configs.KEPT_PREFIX) is not config.has_effect, config.name
