# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages that some benchmarks need."""

import contextlib
import sys


@contextlib.contextmanager
def needed(*packages):
    """Around the imports of `packages`: where one is missing, the script says what it does if it is asked, else what to
    install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        advice = f"found no package {error.name}, needed to measure: pip install {' '.join(packages)}"
        if not {"-h", "--help"}.intersection(sys.argv):
            sys.exit(advice)
        print(sys.modules["__main__"].__doc__.strip(), f"Options: {advice}", sep="\n\n")
        sys.exit()
