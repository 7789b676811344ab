"""Apache Spark: the PyPI package pyspark, and from Maven the jars of its Kafka connector.

`python -m tests.support.spark` fetches them beforehand.
"""

import importlib.util
import shutil
import sys
from collections.abc import Sequence

from tests.support.maven import JarSet
from tests.support.versions import tool_version

SPARK_VERSION = tool_version("spark")
SCALA = tool_version("kafka", "scala")
CLIENTS = tool_version("spark", "kafka_clients")
POOL = tool_version("spark", "commons_pool")
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For short jobs: what starts quickly matters more than what runs quickly."""
# All that the connector needs and pyspark has not: the rest of its dependencies is 50 MB of what it has.
SPARK_KAFKA_JARS = JarSet(
    f"spark-kafka-{SPARK_VERSION}",
    f"clients-{CLIENTS}-pool-{POOL}",
    (
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{SPARK_VERSION}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}:{SPARK_VERSION}",
        f"org.apache.kafka:kafka-clients:{CLIENTS}",
        f"org.apache.commons:commons-pool2:{POOL}",
    ),
    alone=True,
)


def why_no_spark() -> str | None:
    """The reason why Spark cannot run here, or None."""
    if shutil.which("java") is None:
        return "Spark needs Java on PATH"
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (make test-setup does it)"
    return None


def why_no_kafka_connector() -> str | None:
    """The same of Spark with the connector of Kafka."""
    return why_no_spark() or SPARK_KAFKA_JARS.why_missing()


def main(arguments: Sequence[str]) -> None:
    if arguments:
        raise SystemExit("usage: python -m tests.support.spark")
    reason = why_no_kafka_connector()
    if reason is not None:
        sys.stderr.write(f"Tests with Apache Spark will be skipped: {reason}\n")
        return
    sys.stderr.write(f"Kafka connector of Apache Spark {SPARK_VERSION}: {SPARK_KAFKA_JARS.fetched()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
