#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that libraries stand on each other as they declare.

    utils/check_layers.py <build folder>/layers.txt [root]

CMake writes layers.txt: for each target its name, its folder and the targets it
links, separated by `|`. Fails on a cycle, on an include of a library that is not
linked, however indirectly, and where the product needs what is beside it.
"""

import re
import sys
from pathlib import Path

# What may be left out: nothing else under lib links these folders.
OPTIONAL = ("lib/Emulator", "lib/Tools")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.M)


def read_targets(path):
    """Folder and links of each target; links are only those to other targets."""
    rows = [line.split("|") for line in path.read_text().splitlines() if line]
    names = {name for name, _, _ in rows}
    return {name: (folder, [x for x in links.split(";") if x in names]) for name, folder, links in rows}


def find_cycle(targets):
    """Names along a cycle of links, or nothing."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        for link in targets[name][1]:
            if cycle := visit(link):
                return cycle
        done.add(path.pop())
        return []

    return next(filter(None, map(visit, targets)), [])


def get_closure(targets, name):
    found, rest = {name}, [name]
    while rest:
        for link in targets[rest.pop()][1]:
            if link not in found:
                found.add(link)
                rest.append(link)
    return found


class Owners:
    """Which target has a file: that of the nearest folder. A header has that of
    the folder under lib which its own mirrors."""

    def __init__(self, targets):
        self.folders = {folder: name for name, (folder, _) in targets.items()}
        for header, folder in (("fovea", "lib/Registration"), ("fovea-c", "lib/CAPI")):
            if folder in self.folders:
                self.folders[f"include/{header}"] = self.folders[folder]

    def find(self, path):
        for prefix in (path, *path.parents):
            name = prefix.as_posix()
            mirrored = "lib" + name.removeprefix("include/fovea")
            if name.startswith("include/fovea/") and mirrored in self.folders:
                return self.folders[mirrored]
            if name in self.folders:
                return self.folders[name]
        return None

    def find_included(self, root, path, name):
        """That of what the file at `path` includes as `name`, if it is ours."""
        if name.startswith("fovea_rt/"):
            return "fovea_rt" if "runtime" in self.folders else None
        if name.startswith(("fovea/", "fovea-c/")):
            return self.find(Path("include") / name)
        beside = (root / path.parent / name).resolve()
        return self.find(beside.relative_to(root)) if beside.is_file() else None


def check_includes(targets, root):
    owners = Owners(targets)
    closures = {name: get_closure(targets, name) for name in targets}
    for folder in ("include", "lib", "tools", "benchmarks", "python/src"):
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root)
            owner = owners.find(path)
            if file.suffix not in (".h", ".cpp") or owner is None:
                continue
            for name in INCLUDE.findall(file.read_text()):
                library = owners.find_included(root, path, name)
                if library and library not in closures[owner]:
                    yield f"{path}: {owner} does not link {library}, but includes '{name}'"


def check_optional(targets):
    for name, (folder, links) in targets.items():
        for link in links:
            if (
                folder.startswith("lib/")
                and not folder.startswith(OPTIONAL)
                and targets[link][0].startswith(OPTIONAL)
            ):
                yield f"{name}: the product links {link}, which may be left out"


def main():
    targets = read_targets(Path(sys.argv[1]))
    root = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent.parent).resolve()
    cycle = find_cycle(targets)
    faults = [f"cycle: {' -> '.join(cycle)}"] if cycle else []
    faults += check_includes(targets, root)
    faults += check_optional(targets)
    print(*faults, sep="\n", end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or not Path(sys.argv[1]).is_file():
        sys.exit(__doc__)
    sys.exit(main())
