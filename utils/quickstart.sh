#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs the system packages, builds Fovea, and runs dense and fast multipole
# attention on the inputs in examples/data and on random ones of up to 65536
# tokens. Ends in a table.
#
#   utils/quickstart.sh [options of benchmarks/demo.py...]

set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" = --help ]; then
  sed -n '6,/^$/s/^# *//p' "utils/${0##*/}"
  exit
fi

utils/install-deps.sh
utils/build.sh
.venv/bin/python benchmarks/demo.py --build build "$@"
