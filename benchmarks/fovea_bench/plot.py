# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plots as SVG, written by hand so that they need nothing; that of time against N also
as PNG where matplotlib is installed."""

import math
from xml.sax.saxutils import escape

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf")
_WIDTH, _HEIGHT = 720, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 210, 40, 60


def _ticks(low, high, base):
    first = math.floor(math.log(low, base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    return [float(base) ** e for e in range(first, max(last, first + 1) + 1)]


class _Logarithmic:
    """Marks of an axis and where values lie between the first and the last of them."""

    def __init__(self, low, high, base):
        self.ticks = _ticks(low, high, base)

    def place(self, value):
        return math.log(value / self.ticks[0]) / math.log(self.ticks[-1] / self.ticks[0])


class _Linear:
    def __init__(self, low, high):
        step = 10.0 ** math.floor(math.log10(max(high - low, 1e-9)))
        first, last = math.floor(low / step), math.ceil(high / step)
        self.ticks = [step * number for number in range(first, max(last, first + 1) + 1)]

    def place(self, value):
        return (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])


def _time_label(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.999:
            return f"{seconds / size:g} {unit}"
    return f"{seconds / 1e-9:g} ns"


def _count_label(count, most):
    """Long numbers would overlap: then in powers of 1024."""
    if most < 1 << 17 or count < 1024:
        return f"{count:g}"
    return f"{count / (1 << 20):g}M" if count >= 1 << 20 else f"{count / 1024:g}k"


def svg(series, title, x_title="tokens N", y_title="time per head", y_is_time=True):
    """`series`: {name: [(N, seconds), ...]}, at least one point in all. Where y is no time,
    its axis is linear."""
    points = [point for line in series.values() for point in line]
    x_axis = _Logarithmic(min(x for x, _ in points), max(x for x, _ in points), 2)
    low, high = min(y for _, y in points), max(y for _, y in points)
    y_axis = _Logarithmic(low, high, 10) if y_is_time else _Linear(low, high)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(value, axis, begin, end):
        return begin + axis.place(value) * (end - begin)

    def text(x, y, content, anchor="middle", extra=""):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(content)}</text>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        text(_LEFT, 22, title, "start", ' font-size="15"'),
        text((_LEFT + right) / 2, _HEIGHT - 16, x_title),
        text(18, (_TOP + bottom) / 2, y_title, "middle",
             f' transform="rotate(-90 18 {(_TOP + bottom) / 2:.0f})"'),
    ]  # fmt: skip
    for tick in x_axis.ticks:
        x = place(tick, x_axis, _LEFT, right)
        out.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#ddd"/>')
        out.append(text(x, bottom + 18, _count_label(tick, x_axis.ticks[-1])))
    for tick in y_axis.ticks:
        y = place(tick, y_axis, bottom, _TOP)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
        out.append(text(_LEFT - 8, y + 4, _time_label(tick) if y_is_time else f"{tick:g}", "end"))
    for index, (name, line) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        places = [
            (place(x, x_axis, _LEFT, right), place(y, y_axis, bottom, _TOP))
            for x, y in sorted(line)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
        y = _TOP + 10 + 20 * index
        out.append(f'<path d="M{right + 14} {y}h22" stroke="{colour}" stroke-width="2"/>')
        out.append(text(right + 42, y + 4, name, "start"))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def write(series, title, folder):
    """Writes time-against-n.svg, and .png if possible; returns the paths."""
    series = {name: line for name, line in series.items() if line}
    if not series:
        return []
    paths = [folder / "time-against-n.svg"]
    paths[0].write_text(svg(series, title))
    try:
        import matplotlib
    except ImportError:
        return paths
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, line in series.items():
        axes.loglog(*zip(*sorted(line)), "o-", base=2, label=name)
    axes.set_yscale("log", base=10)
    axes.set(xlabel="tokens N", ylabel="seconds per head", title=title)
    axes.grid(True, alpha=0.3)
    axes.legend()
    paths.append(folder / "time-against-n.png")
    figure.savefig(paths[1], dpi=150, bbox_inches="tight")
    pyplot.close(figure)
    return paths
