#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Looks for mistakes without running anything: ruff and mypy in Python, clang-tidy
# in C++. Run after utils/build.sh, which generates what the sources include.
#
#   utils/lint.sh [--all | --list] [files...]
#
# clang-tidy takes about six seconds of a core for a file that includes MLIR. By
# default it sees the runtime, the C interface, the tools, what they share, and at
# most 24 of the C++ files that changed since the branch left main, or else in the
# last commit; --all checks everything, files... only those. --list prints the C++
# files instead of checking. Environment: CLANG_TIDY names another program than
# clang-tidy-22, FOVEA_LINT_BASE another commit that changes count from, and
# FOVEA_LINT_BUILD another build folder than build.

set -euo pipefail
cd "$(dirname "$0")/.."

always=(runtime/lib lib/CAPI lib/Support lib/Tools tools)
most=24
build=${FOVEA_LINT_BUILD:-build}

# The commit from which changes count; nothing where there is no history.
find_base() {
  if [ -n "${FOVEA_LINT_BASE-}" ]; then
    echo "$FOVEA_LINT_BASE"
    return
  fi
  local base=
  for main in origin/main main; do
    base=$(git merge-base "$main" HEAD 2>/dev/null) && break
  done
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --quiet --verify HEAD~1) || true
  fi
  echo "$base"
}

# The sources that show the findings of a changed file: itself, or a header's own.
sources_of_changes() {
  local base
  base=$(find_base)
  [ -n "$base" ] || return 0
  git diff --name-only --diff-filter=AM "$base" -- '*.cpp' '*.h' |
    while read -r file; do
      file=${file%.h}
      file=${file%.cpp}.cpp
      file=${file/#include\/fovea\//lib/}
      [ ! -e "$file" ] || echo "$file"
    done | sort -u
}

mode=default
case "${1-}" in
  --help)
    sed -n '6,/^$/s/^# \?//p' "utils/${0##*/}"
    exit
    ;;
  --all | --list)
    mode=${1#--}
    shift
    ;;
  -*)
    echo "error: unknown argument '$1'" >&2
    exit 2
    ;;
esac

if [ $# -gt 0 ]; then
  files=("$@")
elif [ "$mode" = all ]; then
  mapfile -t files < <(git ls-files '*.cpp' ':!examples/embed')
else
  mapfile -t files < <(git ls-files -- "${always[@]}" | grep '\.cpp$')
  mapfile -t changed < <(sources_of_changes | grep -vxF -f <(printf '%s\n' "${files[@]}") || true)
  if [ ${#changed[@]} -gt $most ]; then
    echo "note: clang-tidy sees $most of ${#changed[@]} changed files; utils/lint.sh --all checks all" >&2
  fi
  files+=("${changed[@]:0:$most}")
fi
# What is not compiled here, such as test inputs, has no flags to check it with.
mapfile -t files < <(printf '%s\n' "${files[@]}" |
  while read -r file; do
    if grep -qF "\"$PWD/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
  done)
if [ "$mode" = list ]; then
  printf '%s\n' "${files[@]}"
  exit
fi

if ! cmp -s utils/lint-requirements.txt .venv/lint-requirements.txt; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r utils/lint-requirements.txt
  cp utils/lint-requirements.txt .venv/lint-requirements.txt
fi

failed=()
echo "ruff"
.venv/bin/ruff check || failed+=(ruff)
echo "mypy"
.venv/bin/mypy || failed+=(mypy)
echo "clang-tidy: ${#files[@]} files"
[ ${#files[@]} -eq 0 ] || printf '%s\0' "${files[@]}" |
  xargs -0 -n1 -P"$(nproc)" "${CLANG_TIDY:-clang-tidy-22}" -p "$build" --quiet --warnings-as-errors='*' ||
  failed+=(clang-tidy)
if [ ${#failed[@]} -gt 0 ]; then
  echo "error: found something: ${failed[*]}" >&2
  exit 1
fi
echo "found nothing"
