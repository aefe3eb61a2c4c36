#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes a minimal Debian 12 with Python in a folder, for utils/check-wheel.sh and
# utils/check-deb.sh, unless it is there. Needs root and debootstrap.
#
#   utils/minimal-debian.sh <folder>

set -euo pipefail
case "${1-}" in
  --help)
    sed -n '6,/^$/s/^# \?//p' "$0"
    exit
    ;;
  "" | -*)
    echo "usage: utils/minimal-debian.sh <folder>" >&2
    exit 2
    ;;
esac
[ ! -e "$1/complete" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "error: a minimal Debian needs root" >&2
  exit 1
fi
if ! command -v debootstrap >/dev/null; then
  echo "error: a minimal Debian needs debootstrap: apt-get install debootstrap" >&2
  exit 1
fi
debootstrap --variant=minbase --include=ca-certificates,python3-venv bookworm "$1"
touch "$1/complete"
