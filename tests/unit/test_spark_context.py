"""What the Spark engine says where Spark cannot run."""

from pathlib import Path

import pytest

from pipeline.engines import spark_context
from pipeline.engines.spark_context import NotInstalled, SparkPlace, check_spark


@pytest.fixture(autouse=True)
def has_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_context, "find_spec", lambda name: object())
    monkeypatch.delenv("JAVA_HOME", raising=False)


def java_in(directory: Path, says: str) -> Path:
    """A `java` that prints this for -version. The home that it is in."""
    (directory / "bin").mkdir()
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
    java.chmod(0o755)
    return directory


def test_without_pyspark_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_context, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match=r"pip install 'dragoman\[spark\]'"):
        check_spark()


def test_without_java_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        NotInstalled, match="needs Java, and there is none on PATH: install a JDK 17 or newer"
    ):
        check_spark()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(NotInstalled, match=f"none in JAVA_HOME .{tmp_path}/none"):
        check_spark()


@pytest.mark.parametrize(
    ("says", "version"), [('openjdk version "11.0.2" 2019-01-15', 11), ('java version "1.8.0_392"', 8)]
)
def test_an_old_java_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, version: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_in(tmp_path, says)))
    with pytest.raises(NotInstalled, match=f"needs Java 17, and {tmp_path}/bin/java is Java {version}: "):
        check_spark()


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_a_java_that_is_new_enough_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_in(tmp_path, says)))
    check_spark()


def test_a_java_that_says_nothing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_in(tmp_path, "hello")))
    with pytest.raises(NotInstalled, match="does not say which it is"):
        check_spark()


def test_spark_on_this_machine_speaks_over_loopback_alone() -> None:
    assert SparkPlace("local[2]").is_here and SparkPlace("spark://127.0.0.1:7077").is_here
    assert not SparkPlace("spark://10.0.0.1:7077").is_here
