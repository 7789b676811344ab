"""Measurements of rooms: converts each to Fahrenheit, and counts them by room in windows of ten seconds."""

import argparse
from datetime import timedelta
from typing import Any

from quixstreams import Application


def with_fahrenheit(measured: dict[str, Any]) -> dict[str, Any]:
    return {**measured, "fahrenheit": measured["celsius"] * 9 / 5 + 32}


def when(measured: dict[str, Any], headers: Any, timestamp_ms: int, timestamp_type: Any) -> int:
    """A measurement belongs to the window of its own time, not of its arrival."""
    return int(measured["at_ms"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--state", required=True, help="directory of the counts, which the gateway has too")
    arguments = parser.parse_args()

    app = Application(
        broker_address=arguments.bootstrap,
        consumer_group="quix-example",
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=arguments.state,
    )
    measured = app.topic("quix-example-measured", value_deserializer="json", timestamp_extractor=when)
    converted = app.topic("quix-example-converted", value_serializer="json")
    counted = app.topic("quix-example-counted", value_serializer="json")

    measurements = app.dataframe(measured)
    measurements.apply(with_fahrenheit).to_topic(converted)
    # A window is emitted once, when a later measurement of its room has closed it.
    measurements.tumbling_window(timedelta(seconds=10)).count().final().to_topic(counted)
    app.run()


if __name__ == "__main__":
    main()
