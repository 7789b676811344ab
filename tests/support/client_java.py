"""Apache Kafka's own Java clients: java/RecordsClient.java, compiled against the jars of each version."""

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support.client_program import ClientProgram
from tests.support.kafka import KAFKA_JARS, OLDER_CLIENT_JARS
from tests.support.made_once import made_once
from tests.support.maven import JarSet

SOURCES = Path(__file__).parent / "java"
MAIN = "RecordsClient"
JARS: Mapping[str, JarSet] = MappingProxyType({"java": KAFKA_JARS, "java-3.9": OLDER_CLIENT_JARS})


def why_no_java_client(name: str = "java") -> str | None:
    if shutil.which("javac") is None:
        return "no javac on PATH"
    return JARS[name].why_missing()


def compiled(classpath: str, main: str = MAIN) -> Path:
    """The directory of classes, compiled again when the source has changed."""
    source = SOURCES / f"{main}.java"
    digest = hashlib.sha256(source.read_bytes() + classpath.encode()).hexdigest()[:16]
    command = ["javac", "-Xlint:all", "-cp", classpath, str(source), "-d"]

    def compile_into(classes: Path) -> None:
        subprocess.run([*command, str(classes)], check=True, timeout=120)

    return made_once(f"e2e-java-{digest}", compile_into)


def java_command(name: str, directory: Path, main: str = MAIN) -> list[str]:
    """`name` is a key of JARS."""
    return program_command(JARS[name].classpath(), directory, main, "log4j2.xml")


def program_command(classpath: str, directory: Path, main: str, log_config: str) -> list[str]:
    options = jvm_options(directory, log_config)
    return ["java", *options, "-cp", f"{compiled(classpath, main)}:{classpath}", main]


def jvm_options(directory: Path, log_config: str) -> list[str]:
    return [
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # A killed JVM leaves the native codecs behind that it unpacked there.
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={SOURCES / log_config}",
    ]


def started_jvm(name: str, directory: Path) -> ClientProgram:
    """`name` is a key of JARS."""
    return ClientProgram(java_command(name, directory), directory)
