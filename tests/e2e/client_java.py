"""Apache Kafka's own Java client: one JVM runs java/RecordsClient.java for the whole session."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.e2e.program import ClientProgram
from tests.support.kafka import kafka_classpath, why_missing
from tests.support.versions import CACHE

SOURCES = Path(__file__).parent / "java"
MAIN = "RecordsClient"


def why_no_java_client() -> str | None:
    if shutil.which("javac") is None:
        return "no javac on PATH"
    return why_missing()


def compiled() -> Path:
    """The directory of classes, compiled anew when the source has changed."""
    source = SOURCES / f"{MAIN}.java"
    digest = hashlib.sha256(source.read_bytes() + kafka_classpath().encode()).hexdigest()[:16]
    target = CACHE / f"e2e-java-{digest}"
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
            command = ["javac", "-Xlint:all", "-cp", kafka_classpath(), "-d", f"{fresh}/classes", str(source)]
            subprocess.run(command, check=True, timeout=120)
            # Another run may have been faster; its classes are the same.
            if not target.exists():
                os.rename(f"{fresh}/classes", target)
    return target


def started_jvm(directory: Path) -> ClientProgram:
    command = [
        "java",
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # A killed JVM leaves the native codecs behind that it unpacked there.
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.xml'}",
        "-cp",
        f"{compiled()}:{kafka_classpath()}",
        MAIN,
    ]
    return ClientProgram(command, directory)
