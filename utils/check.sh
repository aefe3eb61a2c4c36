#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds Fovea and runs all of its tests.
#
#   utils/check.sh [quick] [preset] [options of cmake...]
#
# quick leaves out the tests that take more than some seconds, which say
# 'REQUIRES: long-tests', and runs a part of every matrix: after a build it takes
# less than three minutes of two cores.
# Presets are those of utils/build.sh. Environment: FOVEA_VERIFY_ROUNDTRIP=1 also
# sends the IR of every test through the printer, the parser and bytecode;
# FOVEA_EVERY=n runs one of n cases of the matrices and of Python's tests;
# FOVEA_PART=k/n runs the k-th of n parts of the tests that say
# 'REQUIRES: long-tests', and of the functions of Python's tests.

set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" = --help ]; then
  sed -n '6,/^$/s/^# *//p' "utils/${0##*/}"
  exit
fi

what=all
if [ "${1-}" = quick ]; then
  what=quick
  export FOVEA_QUICK=1 FOVEA_EVERY=${FOVEA_EVERY:-32}
  shift
fi
case "${1-}" in
  "" | -*) preset=release ;;
  *) preset=$1 ;;
esac

utils/build.sh "$@"
cmake --build --preset "$preset" --target check-fovea
echo "$what tests of the '$preset' build passed"
