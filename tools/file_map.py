"""The file map of ARCHITECTURE.md, from what the modules say of themselves in their first sentence."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("gateway", "ledger", "adapters", "pipeline")
BEGIN: Final = "<!-- printed by tools/print_docs.py from the docstrings of modules -->\n"
END: Final = "<!-- end of what is printed -->\n"


def with_file_map(page: str) -> str:
    """The page with the map between its two marks as the modules are now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n{file_map()}\n{end}{after}"


def file_map(root: Path = ROOT) -> str:
    """A table: the packages, and in each its modules and the packages in it."""
    rows = ["| path | |", "| --- | --- |"]
    for package in PACKAGES:
        rows.append(f"| **`{package}/`** | {first_sentence(root / package / '__init__.py')} |")
        rows += [f"| `{path}` | {sentence} |" for path, sentence in _inside(root, package)]
    return "\n".join([*rows, ""])


def first_sentence(file: Path) -> str:
    """Of its docstring, without what ends it."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[^.])\.(?:\s+(?=[A-Z])|$)", paragraph)[0].replace("|", "\\|")


def _inside(root: Path, package: str) -> Iterator[tuple[str, str]]:
    for path in sorted((root / package).iterdir()):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py" and path.stem not in ("__init__", "__main__"):
            yield name, first_sentence(path)
        elif (path / "__init__.py").exists():
            yield f"{name}/", first_sentence(path / "__init__.py")
