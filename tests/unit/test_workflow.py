"""The workflow of the hosted CI runs what the package promises, by the commands that run anywhere."""

import re
import tomllib

from tests.support.versions import ROOT

WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")


def test_it_runs_every_python_version_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {found[1] for one in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", one))}
    assert set(re.findall(r'"(3\.\d+)"', WORKFLOW)) == named


def test_what_it_runs_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"make PYTHON=python ([\w-]+)", WORKFLOW))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets >= {"lint", "test", "test-unit", "wheel"}
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


def test_it_has_no_secrets_and_may_only_read() -> None:
    assert "secrets." not in WORKFLOW
    assert re.findall(r"^permissions:\n((?:  .+\n)+)", WORKFLOW, re.MULTILINE) == ["  contents: read\n"]
