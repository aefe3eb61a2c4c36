#!/usr/bin/env bash
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks the wheels of utils/build-wheels.sh: their sizes, names and symbols; then
# they are installed, without network, into a minimal Debian 12 without LLVM,
# compiler or headers, where the programs of the README, the tools and a kernel with
# the runtime alone are run.
#
#   utils/check-wheel.sh [folder]      default: dist
#
# With PyTorch and JAX, where utils/frameworks.sh has installed them or
# FOVEA_FRAMEWORKS_PYTHON names an interpreter that has them, their glue is run, too.
# Other environment: FOVEA_PYTHONS names interpreters of other versions that are to be
# checked. FOVEA_ROOT=none checks all in virtual environments of this machine instead.
# The minimal Debian needs root and debootstrap; it stays in FOVEA_ROOT, build-root by
# default.

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
root=${FOVEA_ROOT:-build-root}
bin=$PWD/.venv/bin
frameworks=${FOVEA_FRAMEWORKS_PYTHON:-.venv-frameworks/bin/python}
if [ -x "$frameworks" ]; then
  frameworks=$("$frameworks" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
else
  frameworks=
fi
work=$(mktemp -d)
mounted=()
finish() {
  [ ${#mounted[@]} -eq 0 ] || umount "${mounted[@]}"
  rm -rf "$work"
}
trap finish EXIT

fail() {
  echo "error: $*" >&2
  exit 1
}

# The one wheel of that name, which is smaller than so many bytes.
find_wheel() {
  local wheels=("$folder/$1"-*.whl) size
  [ ${#wheels[@]} -eq 1 ] && [ -e "${wheels[0]}" ] ||
    fail "found ${wheels[*]}, needed one wheel; run utils/build-wheels.sh $folder"
  size=$(stat -c %s "${wheels[0]}")
  [ "$size" -le "$2" ] || fail "${wheels[0]} has $size bytes, at most $2 are allowed"
  echo "${wheels[0]##*/}: $size bytes" >&2
  echo "${wheels[0]}"
}

package=$(find_wheel fovea_attention 60000000)
runtime=$(find_wheel fovea_attention_runtime 1000000)
for wheel in "$package" "$runtime"; do
  glibc=$(sed -n 's/.*-manylinux_2_\([0-9]*\)_[a-z0-9_]*\.whl$/\1/p' <<<"$wheel")
  [ -n "$glibc" ] && [ "$glibc" -le 36 ] || fail "$wheel is not for glibc 2.36 or an older one"
  # Libraries of this machine that auditwheel has added.
  ! "$bin/python" -m zipfile -l "$wheel" | grep -F '.libs/' || fail "$wheel has libraries of this machine"
done
"$bin/abi3audit" --strict --summary "$package"

# What the wheels need beside each other, and a kernel that this machine compiles.
mkdir "$work/wheels" "$work/check"
cp "$package" "$runtime" "$work/wheels"
cp -r python/README.md examples utils/check_installed.py "$work/check"
"$bin/pip" download --quiet --disable-pip-version-check --only-binary :all: -d "$work/wheels" "$package"
"$bin/python" -m venv "$work/compiler"
"$work/compiler/bin/pip" install --quiet --disable-pip-version-check --no-index -f "$work/wheels" fovea-attention
"$bin/python" -c 'import sys; sys.path.insert(0, "utils"); import check_installed; print(check_installed.IR)' \
  >"$work/twice.mlir"
"$work/compiler/bin/fovea-compile" "$work/twice.mlir" --emit=so --cpu=x86-64-v2 -o "$work/check/twice.so"

# check <how> <python> <folder> <frameworks> <options of pip...>: in virtual
# environments in the folder. `how` runs a command where folders have these names.
here() { "$@"; }
inside() { chroot "$root" env -i PATH=/usr/bin:/bin "$@"; }
check() {
  local how=$1 python=$2 folder=$3 frameworks=$4 name
  shift 4
  for name in package runtime; do
    "$how" "$python" -m venv --clear "$folder/$name"
  done
  "$how" "$folder/package/bin/pip" install "$@" -f "$folder/wheels" fovea-attention
  "$how" "$folder/runtime/bin/pip" install "$@" -f "$folder/wheels" fovea-attention-runtime
  "$how" "$folder/package/bin/python" "$folder/check/check_installed.py" \
    "$folder/check/README.md" "$folder/check/examples/python_quickstart.py" $frameworks
  "$how" "$folder/runtime/bin/python" "$folder/check/check_installed.py" --runtime "$folder/check/twice.so"
}
quiet=(--quiet --disable-pip-version-check)

if [ "$root" = none ]; then
  check here "$bin/python" "$work" "$frameworks" "${quiet[@]}" --no-index
else
  utils/minimal-debian.sh "$root"
  inside python3 --version
  for name in cc clang gcc ld lld ninja; do
    ! inside sh -c "command -v $name" || fail "$root has $name"
  done
  rm -rf "$root/opt/check"
  ! find "$root/usr" "$root/opt" -name '*LLVM*' -o -name '*MLIR*' -o -name 'stdio.h' | grep . || fail "$root is not minimal"
  mkdir "$root/opt/check"
  cp -r "$work/wheels" "$work/check" "$root/opt/check"
  mount -t proc proc "$root/proc"
  mounted+=("$root/proc")
  if [ -n "$frameworks" ]; then
    mount --bind -o ro "$frameworks" "$root/mnt"
    mounted+=("$root/mnt")
    frameworks=/mnt
  fi
  check inside python3 /opt/check "$frameworks" "${quiet[@]}" --no-index
fi
for python in ${FOVEA_PYTHONS-}; do
  check here "$python" "$work" "" "${quiet[@]}"
done
echo "the wheels work"
