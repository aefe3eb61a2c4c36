# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine: its description, and which of its CPUs to use."""

import datetime
import os
import pathlib
import platform
import re
import subprocess


def available_cpus():
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def choose(cpus, threads):
    """The last ones: interrupts are mostly served by the first."""
    if not 1 <= threads <= len(cpus):
        raise ValueError(f"threads: found {threads}, needed 1 to {len(cpus)}, one per CPU")
    return cpus[-threads:]


def pin(cpus):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)


def _read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None


def _cpu_name():
    match = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo") or "")
    return match.group(1) if match else platform.processor() or platform.machine()


def _memory_bytes():
    match = re.search(r"MemTotal:\s*(\d+) kB", _read("/proc/meminfo") or "")
    return int(match.group(1)) * 1024 if match else None


def _cache_sizes():
    sizes = {}
    for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _read(folder / "level"), _read(folder / "type")
        if level and kind:
            sizes[f"L{level} {kind.lower()}"] = _read(folder / "size")
    return sizes


def _git(source, *arguments):
    try:
        process = subprocess.run(
            ["git", "-C", str(source), *arguments], capture_output=True, text=True
        )
    except OSError:
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def commit(source):
    """The commit of the sources, with '+' when files differ from it."""
    name = _git(source, "rev-parse", "--short=12", "HEAD")
    if name is None:
        return None
    changed = _git(source, "status", "--porcelain", "--untracked-files=no")
    return name + "+" if changed else name


def build_flags(build):
    """The settings of the build folder that speed can depend on."""
    cache = _read(pathlib.Path(build) / "CMakeCache.txt") or ""
    wanted = (
        "CMAKE_BUILD_TYPE",
        "CMAKE_CXX_COMPILER",
        "CMAKE_CXX_FLAGS",
        "FOVEA_ENABLE_ASSERTIONS",
        "FOVEA_SANITIZERS",
    )
    flags = {}
    for name in wanted:
        match = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
        if match and match.group(1):
            flags[name] = match.group(1)
    return flags


def describe(source, build, cpus):
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_name(),
        "cpus": len(cpus),
        "affinity": cpus,
        "caches": _cache_sizes(),
        "memory_bytes": _memory_bytes(),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "build": build_flags(build),
        "commit": commit(source),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }
