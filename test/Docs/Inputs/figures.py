# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the figures in a table are recorded, where the text above it links to
the whole table: each time, share, ratio and size must be one of those on the linked
pages, rounded as it is here, and no end of a range there. What has no unit (targets in
brackets, extents) is not looked at.

    figures.py <page>
"""

import pathlib
import re
import sys

NUMBER = r"\d+(?:\.\d+)?"
# What a unit measures, and how much of it.
UNITS = {
    "s": ("time", 1.0), "ms": ("time", 1e-3), "us": ("time", 1e-6), "ns": ("time", 1e-9),
    "kB": ("size", 1e3), "MB": ("size", 1e6), "GB": ("size", 1e9),
    "GFLOP/s": ("rate", 1.0), "%": ("share", 1.0), "x": ("ratio", 1.0),
}
UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
# One unit may stand behind several numbers: "50.3 / 24.7 ms", "1.10 to 1.14x".
FIGURES = re.compile(rf"(?<![\w.])({NUMBER}(?: ?(?:/|to|and|\.\.) ?{NUMBER})*) ?({UNIT})(?![\w/])")
# From the least to the greatest of several runs.
RANGE = re.compile(r"\([^()|]*\.\.[^()|]*\)")
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")


def figures(text):
    """What it measures, its number, half a unit of its last digit, and the text of each figure."""
    for numbers, unit in FIGURES.findall(text):
        kind, factor = UNITS[unit]
        for number in re.findall(NUMBER, numbers):
            decimals = len(number.partition(".")[2])
            yield kind, float(number) * factor, 0.5 * 10.0**-decimals * factor, f"{number} {unit}".replace(" x", "x")


def tables(text):
    """Pairs of the text between two tables and the rows of the second one."""
    above, rows = [], []
    for line in text.splitlines() + [""]:
        if line.startswith("|"):
            rows.append(line)
            continue
        if rows:
            yield "\n".join(above), rows
            above, rows = [], []
        above.append(line)


def main():
    page = pathlib.Path(sys.argv[1])
    count = unknown = 0
    for above, rows in tables(page.read_text()):
        section = above.rpartition("\n#")[2]
        if "whole table" not in section:
            continue
        records = [page.parent / link for link in LINK.findall(section)]
        recorded = [figure for record in records for figure in figures(RANGE.sub("", record.read_text()))]
        for row in rows:
            for kind, value, rounding, text in figures(row):
                count += 1
                if any(kind == other and abs(value - found) <= rounding * (1 + 1e-6) for other, found, _, _ in recorded):
                    continue
                unknown += 1
                print(f"{page.name}: '{row.split('|')[1].strip()}' has {text}, which {' or '.join(r.name for r in records)} has not")
    print(f"{count} figures, {unknown} not recorded")
    return unknown != 0 or count == 0


sys.exit(main())
