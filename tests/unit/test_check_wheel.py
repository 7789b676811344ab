"""What is published: complete, typed, and with its licence."""

import subprocess
import sys

import pytest

from gateway.version import product_version
from tools.check_wheel import PACKAGES, ROOT, missing_in_source, missing_in_wheel

STEM = "dragoman-1.0"


def complete_wheel() -> list[str]:
    modules = [str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    markers = [f"{package}/py.typed" for package in PACKAGES]
    return [*modules, *markers, *(f"{STEM}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE"))]


def test_a_wheel_with_all_modules_markers_and_licences_lacks_nothing() -> None:
    assert missing_in_wheel(complete_wheel(), STEM) == []


def test_a_wheel_without_a_module_or_its_notice_is_found() -> None:
    gone = {"gateway/wire/messages/generated/metadata.py", f"{STEM}.dist-info/licenses/NOTICE"}
    names = [name for name in complete_wheel() if name not in gone]
    assert missing_in_wheel(names, STEM) == sorted(f"{name} in the wheel" for name in gone)


def test_a_source_distribution_without_its_notice_is_found() -> None:
    wanted = ("LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "deploy/Dockerfile")
    names = [f"{STEM}/{name}" for name in wanted]
    assert missing_in_source(names, STEM) == ["NOTICE in the source distribution"]


def test_the_packages_say_that_they_are_typed() -> None:
    assert all((ROOT / package / "py.typed").exists() for package in PACKAGES)


@pytest.mark.parametrize("page", ["README.md", "docs/deployment.md"])
def test_a_page_names_every_package_that_is_installed(page: str) -> None:
    """Names that other projects use too: a user has to know of each."""
    (line,) = [
        line for line in (ROOT / page).read_text("utf-8").splitlines() if "other projects use too" in line
    ]
    assert [package for package in PACKAGES if f"`{package}`" not in line] == []


def test_python_m_gateway_is_the_command() -> None:
    command = [sys.executable, "-m", "gateway", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=True)
    assert finished.stdout.strip() == product_version()
