"""How long modules and functions are, and whether they are within bounds: part of `make lint`.

python tools/sizes.py           print the figures of the product's functions, and its longest ones
python tools/sizes.py --check   say what is out of bounds; exit code 1

A function counts from `def` to its last line. Its decorators do not count, nor do generated modules.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ("gateway", "ledger", "adapters", "pipeline")
GENERATED: Final = ("gateway/wire/messages/generated/", "adapters/rpc/generated/")
MODULE_LINES: Final = {
    "gateway": 500,
    "ledger": 500,
    "adapters": 500,
    "pipeline": 500,
    "tools": 500,
    "bench": 500,
    "tests": 650,
}
"""At most, by the directory that a module lies in."""
LONGER_MODULES: Final[Mapping[str, str]] = {}
"""Modules that may be longer, each with its reason. One that is short enough must leave the list."""
FUNCTION_P50: Final = 6
FUNCTION_P90: Final = 18
FUNCTION_MAX: Final = 49


class Function(NamedTuple):
    lines: int
    where: str
    """path:line name"""


class Spread(NamedTuple):
    """Of the lengths of functions."""

    functions: int
    p50: int
    p90: int
    longest: int


def functions_of(source: str, path: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(lines, f"{path}:{node.lineno} {node.name}")


def spread_of(functions: Iterable[Function]) -> Spread:
    lengths = sorted(function.lines for function in functions)
    return Spread(len(lengths), lengths[len(lengths) // 2], lengths[len(lengths) * 9 // 10], lengths[-1])


def out_of_bounds(functions: Sequence[Function]) -> list[str]:
    spread = spread_of(functions)
    found = [
        f"{function.where} has {function.lines} lines, at most {FUNCTION_MAX} are allowed: split it"
        for function in functions
        if function.lines > FUNCTION_MAX
    ]
    for name, is_now, bound in (
        ("half", spread.p50, FUNCTION_P50),
        ("nine tenths", spread.p90, FUNCTION_P90),
    ):
        if is_now > bound:
            found.append(f"{name} of the functions have at most {is_now} lines, it should be {bound}")
    return found


def too_long(lines: Mapping[str, int], longer: Mapping[str, str]) -> list[str]:
    """What is wrong with the lengths of modules, by their paths."""
    found = []
    for path, count in sorted(lines.items()):
        most = MODULE_LINES[path.split("/")[0]]
        if count > most and path not in longer:
            found.append(f"{path} has {count} lines, at most {most} are allowed: split it")
    for path in longer:
        if lines.get(path, 0) <= MODULE_LINES[path.split("/")[0]]:
            found.append(f"{path} is not too long any more: take it out of LONGER_MODULES")
    return found


def sources(root: Path = ROOT) -> dict[str, str]:
    """The text of each module that is written by hand, by its path."""
    return {
        path: file.read_text("utf-8")
        for top in MODULE_LINES
        for file in sorted((root / top).rglob("*.py"))
        if not (path := file.relative_to(root).as_posix()).startswith(GENERATED)
    }


def main(arguments: list[str]) -> int:
    texts = sources()
    functions = sorted(
        function
        for path, text in texts.items()
        if path.startswith(PRODUCT)
        for function in functions_of(text, path)
    )
    if arguments == ["--check"]:
        found = too_long({path: text.count("\n") for path, text in texts.items()}, LONGER_MODULES)
        found += out_of_bounds(functions)
        for sentence in found:
            print(sentence, file=sys.stderr)
        return 1 if found else 0
    spread = spread_of(functions)
    print(f"{spread.functions} functions: half have at most {spread.p50} lines, nine tenths {spread.p90}")
    for function in reversed(functions[-10:]):
        print(f"{function.lines:5} {function.where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
