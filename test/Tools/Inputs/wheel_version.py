# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The version that a wheel of the package in the folder would have."""

import os
import sys
import tomllib

from scikit_build_core.metadata import regex

os.chdir(sys.argv[1])
with open("pyproject.toml", "rb") as file:
    settings = tomllib.load(file)["tool"]["scikit-build"]["metadata"]["version"]
settings.pop("provider")
print(regex.dynamic_metadata("version", settings))
