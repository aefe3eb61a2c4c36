# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that no two paths, one on each line of standard input, and no two of their
folders differ in case only: a file system that ignores case has one of them."""

import pathlib
import sys


def collisions(paths):
    """Pairs of different paths or folders that are the same in lower case."""
    seen = {}
    for path in paths:
        for part in (*reversed(path.parents), path):
            first = seen.setdefault(str(part).lower(), part)
            # Below folders that collide, everything does.
            if first != part and first.parent == part.parent:
                yield first, part


def main():
    found = list(dict.fromkeys(collisions(pathlib.PurePosixPath(line.rstrip("\n")) for line in sys.stdin)))
    for first, second in found:
        print(f"{first} and {second} differ in case only")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
