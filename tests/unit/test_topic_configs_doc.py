"""The page of topic configs says what the code does."""

import re
from pathlib import Path

from gateway.configs.topic_configs import TOPIC_CONFIGS
from tools import write_topic_configs

ROOT = Path(__file__).resolve().parents[2]
RULES = ("gateway/produce", "gateway/fetch", "gateway/housekeeping", "gateway/handlers")
"""Modules that read topic configs."""


def test_the_page_of_topic_configs_is_printed_from_their_table() -> None:
    assert (ROOT / "docs" / "topic-configs.md").read_text("utf-8") == write_topic_configs.page()


def test_the_configs_with_an_effect_are_those_that_the_code_reads() -> None:
    sources = "\n".join(path.read_text("utf-8") for part in RULES for path in (ROOT / part).rglob("*.py"))
    read = {name for name in TOPIC_CONFIGS if re.search(rf'value\(\s*"{re.escape(name)}"', sources)}
    assert read == {config.name for config in TOPIC_CONFIGS.values() if config.has_effect}


def test_the_documentation_of_a_config_without_an_effect_says_so() -> None:
    for config in TOPIC_CONFIGS.values():
        assert config.doc.startswith(write_topic_configs.KEPT_PREFIX) is not config.has_effect, config.name
