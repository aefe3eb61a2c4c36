#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Configures and builds Fovea.
#
#   utils/build.sh [preset] [options of cmake...]
#
# A preset is one of CMakePresets.json: release (the default), dev or asan. Its
# build folder is build, build-dev or build-asan. Python packages go to .venv.

set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" = --help ]; then
  sed -n '6,/^$/s/^# *//p' "utils/${0##*/}"
  exit
fi

preset=release
case "${1-}" in
  "" | -*) ;;
  *)
    preset=$1
    shift
    ;;
esac

utils/install-deps.sh --check || {
  echo "error: run utils/install-deps.sh first" >&2
  exit 1
}

if [ ! -x .venv/bin/python ]; then
  "${PYTHON:-python3}" -m venv .venv
fi
# Again only when the list changes.
if ! cmp -s utils/requirements.txt .venv/requirements.txt; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r utils/requirements.txt
  cp utils/requirements.txt .venv/requirements.txt
fi

cmake --preset "$preset" "$@"
cmake --build --preset "$preset"
