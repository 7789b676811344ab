"""Java libraries for the tests: jars from Maven into `.cache/<name>/libs`, once."""

import fcntl
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.versions import CACHE, tool_version

FETCH_TIMEOUT_S = 600.0
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dragoman.tests</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{exclusions}
    </dependency>"""
NOTHING_ELSE = """
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Artifacts (`group:artifact:version`) and all that they need to run, unless `alone`.

    `name` is the directory below `.cache`. `stamp` names whatever decides on the jars besides `name`:
    when it changes they are fetched again.
    """

    name: str
    stamp: str
    artifacts: tuple[str, ...]
    alone: bool = False

    def why_missing(self) -> str | None:
        """The reason why these jars cannot be used here, or None."""
        if shutil.which("java") is None:
            return "no java on PATH"
        if shutil.which("mvn") is None and not self._stamp.exists():
            return "no mvn on PATH to fetch Kafka with"
        return None

    def fetched(self) -> Path:
        """The directory of jars, fetched when it is not there yet; safe to call from several processes.

        Errors: RuntimeError with Maven's last words.
        """
        home = self._stamp.parent
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._stamp.exists():
                self._fetch(home)
                self._stamp.touch()
        return home / "libs"

    def classpath(self) -> str:
        return f"{self.fetched()}/*"

    @property
    def _stamp(self) -> Path:
        return CACHE / self.name / f".stamp-{self.stamp}"

    def _fetch(self, home: Path) -> None:
        shutil.rmtree(home / "libs", ignore_errors=True)
        pom = home / "pom.xml"
        pom.write_text(self._pom())
        plugin = f"maven-dependency-plugin:{tool_version('maven', 'dependency_plugin')}"
        goal = f"org.apache.maven.plugins:{plugin}:copy-dependencies"
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={home / 'libs'}"]
        done = subprocess.run(
            ["mvn", "-B", "-q", "-f", str(pom), goal, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            words = done.stdout[-2000:].decode(errors="replace")
            raise RuntimeError(f"Maven could not fetch {self.name}:\n{words}")

    def _pom(self) -> str:
        exclusions = NOTHING_ELSE if self.alone else ""
        named = [artifact.split(":") for artifact in self.artifacts]
        dependencies = [
            DEPENDENCY.format(group=group, artifact=artifact, version=version, exclusions=exclusions)
            for group, artifact, version in named
        ]
        return POM.format(name=self.name, dependencies="\n".join(dependencies))
