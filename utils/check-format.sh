#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks that the C and C++ files in git, and new ones that git does not ignore,
# are formatted as .clang-format says.
#
#   utils/check-format.sh [--fix]
#
# Environment: CLANG_FORMAT names another program than clang-format-22.

set -euo pipefail
if [ "${1-}" = --help ]; then
  sed -n '6,/^$/s/^# \?//p' "$0"
  exit
fi
cd "$(dirname "$0")/.."

mode=(--dry-run -Werror)
case "${1-}" in
  "") ;;
  --fix) mode=(-i) ;;
  *)
    echo "error: unknown argument '$1'" >&2
    exit 2
    ;;
esac

git ls-files -z --cached --others --exclude-standard -- \
  '*.c' '*.cc' '*.cpp' '*.h' '*.hpp' |
  xargs -0 -r "${CLANG_FORMAT:-clang-format-22}" "${mode[@]}"
