"""Flame graphs as small SVG, drawn from folded stacks. Pure.

A box is a frame, as wide as its share of the samples, above its caller; narrow ones are left out. A
tool tip has name and share.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, HEAD = 1200, 17, 40
NARROWEST = 0.004
"""Share of the whole below which a frame is not drawn."""
LETTER = 6.4
COLORS = {"gateway": "#7fb0dd", "ledger": "#9fd08b", "adapters": "#e7b96b"}
OTHERS = "#d5d5d5"
# Where every stack of a gateway passes through before it does anything.
_ENTRANCE = "Runner.run"


@dataclass(slots=True)
class _Frame:
    count: int = 0
    callees: dict[str, "_Frame"] = field(default_factory=dict)


def flame_svg(stacks: Mapping[tuple[str, ...], int], title: str) -> str:
    """`stacks`: samples by stack, outermost frame first."""
    root = _Frame()
    for stack, count in stacks.items():
        _add(root, _without_entrance(stack), count)
    boxes = list(_boxes(root, 0.0, 0, root.count))
    height = HEAD + ROW * (1 + max((depth for _, _, depth, _ in boxes), default=0)) + ROW
    body = "".join(_box(name, start, depth, share, height) for name, start, depth, share in boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="monospace" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<text x="8" y="22" font-size="15">{escape(title)} ({root.count} samples)</text>{body}</svg>\n'
    )


def _without_entrance(stack: tuple[str, ...]) -> tuple[str, ...]:
    for at, frame in enumerate(stack):
        if frame.startswith(_ENTRANCE):
            return stack[at:]
    return stack


def _add(root: _Frame, stack: tuple[str, ...], count: int) -> None:
    frame = root
    frame.count += count
    for name in stack:
        frame = frame.callees.setdefault(name, _Frame())
        frame.count += count


def _boxes(frame: _Frame, start: float, depth: int, total: int) -> Iterator[tuple[str, float, int, float]]:
    """(name, where it starts, depth, share) of all callees, the widest first."""
    for name, callee in sorted(frame.callees.items(), key=lambda item: -item[1].count):
        share = callee.count / total
        if share >= NARROWEST:
            yield name, start, depth, share
            yield from _boxes(callee, start, depth + 1, total)
        start += share


def _box(name: str, start: float, depth: int, share: float, height: int) -> str:
    x, width = start * WIDTH, share * WIDTH
    y = height - ROW * (depth + 2)
    color = next((color for package, color in COLORS.items() if f"({package}/" in name), OTHERS)
    fitting = name.split(" (")[0][: max(int(width / LETTER) - 1, 0)]
    text = f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(fitting)}</text>' if len(fitting) > 2 else ""
    return (
        f"<g><title>{escape(name)} {100 * share:.1f} %</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" height="{ROW - 1}" '
        f'fill="{color}"/>{text}</g>'
    )
