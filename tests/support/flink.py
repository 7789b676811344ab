"""Apache Flink with its Kafka connector: jars from Maven, for a job that runs in one JVM."""

from pathlib import Path
from typing import Final

from tests.support.client_java import compiled, jvm_options, why_no_java_client
from tests.support.kafka import LOG4J
from tests.support.maven import JarSet
from tests.support.versions import tool_version

FLINK_VERSION: Final = tool_version("flink")
CONNECTOR: Final = tool_version("flink", "connector")
FLINK_JARS: Final = JarSet(
    f"flink-{FLINK_VERSION}",
    f"connector-{CONNECTOR}-log4j-{LOG4J}",
    (
        f"org.apache.flink:flink-streaming-java:{FLINK_VERSION}",
        f"org.apache.flink:flink-clients:{FLINK_VERSION}",
        f"org.apache.flink:flink-connector-base:{FLINK_VERSION}",
        f"org.apache.flink:flink-connector-kafka:{CONNECTOR}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    ),
)
# Flink serializes what the JDK has closed since.
OPENED: Final = ("java.base/java.util", "java.base/java.lang", "java.base/java.time")


def why_no_flink() -> str | None:
    """The reason why Flink cannot run here, or None."""
    return FLINK_JARS.why_missing() or why_no_java_client()


def flink_command(main: str, directory: Path) -> list[str]:
    """Of a program in tests/support/java/. Errors: RuntimeError with Maven's last words."""
    classpath = FLINK_JARS.classpath()
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    options = [*jvm_options(directory, "log4j2.xml"), *opened]
    return ["java", *options, "-cp", f"{compiled(classpath, main)}:{classpath}", main]
