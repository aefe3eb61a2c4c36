#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs the system packages that Fovea is built with, on Debian 12 or a
# system with packages of the same names.
#
#   utils/install-deps.sh           install what is missing
#   utils/install-deps.sh --check   only say what is missing; exit status 1 if anything is

set -euo pipefail
if [ "${1-}" = --help ]; then
  sed -n '6,/^$/s/^# \?//p' "$0"
  exit
fi

packages=(
  # The compiler and the libraries Fovea is made of.
  clang-22 lld-22 libclang-rt-22-dev
  llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools
  # What a wheel links beside them.
  libzstd-dev zlib1g-dev
  # Build tools.
  cmake ninja-build ccache clang-format-22 clang-tidy-22 git
  # Tests and the Python package.
  libgtest-dev libgmock-dev python3-dev python3-venv
)

check_only=0
case "${1-}" in
  "") ;;
  --check) check_only=1 ;;
  *)
    echo "usage: utils/install-deps.sh [--check]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "error: this is no Debian system (found no dpkg-query); install by hand: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ]; then
  echo "all ${#packages[@]} system packages are installed"
  exit 0
fi
echo "missing system packages: ${missing[*]}"
[ "$check_only" = 0 ] || exit 1

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: installing needs root, but found no sudo; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# Nobody may be there to answer a question.
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install --yes --no-install-recommends "${missing[@]}")
"${as_root[@]}" apt-get update </dev/null
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" </dev/null; then
  echo "error: apt-get failed; LLVM 22 is in Debian 12's bookworm-security and bookworm-updates" >&2
  exit 1
fi
echo "installed ${#missing[@]} system packages"
