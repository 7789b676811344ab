"""Which modules of a program decide, and which do: every module is pure but those on a list.

A pure module imports nothing that does I/O, waits or has a clock, neither itself nor by another module.
"""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

Imports = Mapping[str, Collection[str]]
"""What each module imports itself."""


def impurities(imports: Imports, does_io: Sequence[str], forbidden: Collection[str]) -> list[list[str]]:
    """For each module that should be pure and is not the shortest way to what it must not import.

    `does_io` has patterns of modules (`gateway.cli.*`) that are on the list; `forbidden` names top-level
    modules."""
    return [
        way
        for module in sorted(imports)
        if not _listed(module, does_io) and (way := _way(imports, module, forbidden))
    ]


def needless(imports: Imports, does_io: Sequence[str], forbidden: Collection[str]) -> list[str]:
    """Patterns of the list that name no module, or pure ones alone: those should be held to be pure."""
    return [
        pattern
        for pattern in does_io
        if not any(fnmatchcase(module, pattern) and _way(imports, module, forbidden) for module in imports)
    ]


def _listed(module: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def _way(imports: Imports, module: str, forbidden: Collection[str]) -> list[str]:
    """Breadth first, from the module to the forbidden one; empty if there is none."""
    came_from: dict[str, str | None] = {module: None}
    queue = [module]
    for at in queue:
        if at not in imports and at.split(".")[0] in forbidden:
            way, step = [at], came_from[at]
            while step is not None:
                way.append(step)
                step = came_from[step]
            return way[::-1]
        for imported in sorted(imports.get(at, ())):
            if imported not in came_from:
                came_from[imported] = at
                queue.append(imported)
    return []
