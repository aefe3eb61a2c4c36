#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes the wheels that run anywhere: fovea-attention, with all of Fovea and LLVM,
# and fovea-attention-runtime, for kernels that fovea-compile has made. Their names
# tell which glibc they need. Run after utils/build.sh, whose packages of Python and
# compiled files are used.
#
#   utils/build-wheels.sh [folder]      default: dist

set -euo pipefail
cd "$(dirname "$0")/.."
case "${1-}" in
  --help)
    sed -n '6,/^$/s/^# \?//p' "utils/${0##*/}"
    exit
    ;;
  -*)
    echo "error: unknown argument '$1'" >&2
    exit 2
    ;;
esac
folder=${1:-dist}
bin=$PWD/.venv/bin

if ! cmp -s utils/wheel-requirements.txt .venv/wheel-requirements.txt; then
  "$bin/pip" install --quiet --disable-pip-version-check -r utils/wheel-requirements.txt
  cp utils/wheel-requirements.txt .venv/wheel-requirements.txt
fi

plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
"$bin/pip" wheel --disable-pip-version-check --no-build-isolation --no-deps -v -w "$plain" ./python ./runtime
mkdir -p "$folder"
rm -f "$folder"/fovea_attention*.whl
# Nothing is to be added to them; that only gives them their names.
PATH=$bin:$PATH "$bin/auditwheel" repair --wheel-dir "$folder" "$plain"/*.whl
ls -l "$folder"
