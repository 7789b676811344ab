"""Plugins of all suites; fixtures live beside what they start, in `tests/support/`."""

pytest_plugins = ["pytester", "tests.support.suite_table", "tests.support.kafka", "tests.support.gateway"]
