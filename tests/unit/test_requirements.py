"""What is installed is pinned with its hashes, and constraints.txt is where each version is chosen."""

import re
import tomllib

from tests.support.versions import ROOT
from tools.pin_requirements import REQUIREMENTS, besides, blocks, name_of, versions

FILES = {path.stem: path.read_text("utf-8") for path in sorted(REQUIREMENTS.glob("*.txt"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RERUN = "run make pins"

TWO = """\
a-b==1.0 \\
    --hash=sha256:00 \\
    --hash=sha256:01
c==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:02
"""


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {name_of(name): version for name, version in pins}


def test_there_is_a_file_for_run_pip_and_every_extra() -> None:
    assert set(FILES) == {"run", "pip", *PROJECT["project"]["optional-dependencies"]}


def test_versions_are_those_of_the_constraints_and_no_constraint_is_idle() -> None:
    pinned = [found for text in FILES.values() for found in versions(text).items()]
    chosen = constraints()
    assert [f"{name}=={version}" for name, version in pinned if chosen.get(name) != version] == [], RERUN
    assert set(chosen) - {name for name, _ in pinned} == set(), RERUN


def test_every_dependency_that_the_project_names_is_in_its_file() -> None:
    named = {"run": [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]}
    named |= PROJECT["project"]["optional-dependencies"]
    missing = [
        (file, one)
        for file, requirements in named.items()
        for one in requirements
        if name_of(re.split(r"[<>=!~ \[]", one)[0]) not in versions(FILES[file]) | versions(FILES["run"])
    ]
    assert missing == [], RERUN


def test_every_requirement_has_hashes() -> None:
    bare = [
        name for text in FILES.values() for name, one in blocks(text).items() if "--hash=sha256:" not in one
    ]
    assert bare == []


def test_no_file_names_an_index() -> None:
    assert [name for name, text in FILES.items() if "://" in text or "--index" in text] == []


def test_a_file_is_taken_apart_by_packages() -> None:
    assert versions(TWO) == {"a-b": "1.0", "c": "2.0"}
    assert blocks(TWO)["c"] == "c==2.0 ; python_full_version < '3.12' \\\n    --hash=sha256:02"


def test_an_extra_has_what_run_has_not() -> None:
    assert list(besides(blocks(TWO), {"a-b": blocks(TWO)["a-b"]})) == ["c"]
