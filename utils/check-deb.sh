#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes the Debian package, installs it with all that it depends on into a minimal
# Debian 12, and runs the tools there. Run after utils/build.sh, as root.
#
#   utils/check-deb.sh [folder]      of the package, default: dist
#
# Environment: FOVEA_ROOT names the folder of that Debian, default build-root-deb.

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
root=${FOVEA_ROOT:-build-root-deb}
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

utils/minimal-debian.sh "$root"

rm -f "$folder"/fovea_*.deb
cpack --config build/CPackConfig.cmake -B "$folder"
rm -rf "$folder/_CPack_Packages"
ls -l "$folder"/fovea_*.deb

# LLVM 22 came to Debian 12 later.
if [ ! -e "$root/etc/apt/sources.list.d/later.list" ]; then
  sed -n 's/^deb \(.*\) bookworm main$/deb \1 bookworm-updates main\ndeb \1-security bookworm-security main/p' \
    "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/later.list"
fi
cp "$folder"/fovea_*.deb "$root/opt/fovea.deb"
inside apt-get update -qq
inside apt-get install -qq --reinstall --no-install-recommends /opt/fovea.deb

tools=$(inside dpkg -L fovea | sed -n 's|^/usr/bin/||p')
for tool in $tools; do
  inside "$tool" --help >"$root/opt/help.txt"
  grep -q -i "usage: *$tool" "$root/opt/help.txt" || {
    echo "error: $tool --help does not tell how to use it" >&2
    exit 1
  }
done
python3 -c 'import sys; sys.path.insert(0, "utils"); import check_installed; print(check_installed.IR)' >"$root/opt/twice.mlir"
inside fovea-run /opt/twice.mlir --random --shape=7 --shape=7 --compare=reference
inside fovea-compile /opt/twice.mlir -o /opt/twice.o
echo "the package works:" $tools
