# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled code on disk: what other processes find, and that nothing that happens
to it is an error. Each run of `PROGRAM` is a process of its own."""

import os
import shutil
import subprocess
import sys
import time

import pytest

# Prints how many kernels it compiled and loaded. Results are compared with the
# reference, which compiles nothing.
PROGRAM = """
import os, sys
import numpy as np
import fovea
from fovea import _fovea, reference

random = np.random.default_rng(0)
q, k, v = (random.standard_normal((1, 2, 19, 8), np.float32) for _ in range(3))
layout = np.ascontiguousarray(q.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
kernel = fovea.compile("func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> {\\n  return %a : tensor<2xf32>\\n}")

def near(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

for length in (19, 7):
    for x in (q[:, :, :length], layout[:, :, :length]):
        causal = length == 7
        near(fovea.dense(x, k, v, causal=causal), reference.dense(x, k, v, causal=causal))
near(kernel(np.ones(2, np.float32)), np.ones(2))
near(kernel.vjp()(np.ones(2, np.float32), np.full(2, 3, np.float32)), np.full(2, 3))
_, _, misses, loads = _fovea.cache_statistics()
print(misses - loads, loads)
"""


def start(folder, program=PROGRAM, **variables):
    environment = {**os.environ, "FOVEA_CACHE_DIR": str(folder), **variables}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    """How many kernels the process compiled, and how many it loaded."""
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    compiled, loaded = out.split()
    return int(compiled), int(loaded)


def run(folder, program=PROGRAM, **variables):
    return finish(start(folder, program, **variables))


def entries(folder):
    return sorted(folder.glob("*.kernel"))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    compiled, loaded = run(folder)
    assert compiled == len(entries(folder)) > 4 and loaded == 0
    return folder


@pytest.fixture
def filled(full, tmp_path):
    """A folder with the kernels of `PROGRAM`, for a test to damage."""
    return shutil.copytree(full, tmp_path, dirs_exist_ok=True)


def test_the_second_process_compiles_nothing(filled):
    assert run(filled) == (0, len(entries(filled)))


def test_each_process_makes_the_same_key_of_a_call(tmp_path):
    program = f"""
import os, sys
folder = os.environ["FOVEA_CACHE_DIR"]
sys.path.insert(0, {os.path.dirname(__file__)!r})
from call_cases import FUNCTIONS, case
import fovea
os.environ["FOVEA_CACHE_DIR"] = folder
for name in FUNCTIONS:
    function, arguments, options = case(name, "float32")
    function(*arguments, **options)
_, _, misses, loads = fovea._fovea.cache_statistics()
print(misses - loads, loads)
"""
    compiled, loaded = run(tmp_path, program)
    assert compiled > 20 and loaded == 0
    assert run(tmp_path, program) == (0, compiled)


def test_an_empty_variable_turns_it_off(tmp_path):
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):
        compiled, loaded = run("", **home)
        assert compiled > 0 and loaded == 0
    assert not list(tmp_path.iterdir())


def test_the_default_is_in_the_cache_folder_of_the_user(tmp_path):
    program = "import os\ndel os.environ['FOVEA_CACHE_DIR']\nos.environ.pop('XDG_CACHE_HOME', 0)\n" + PROGRAM
    compiled, _ = run("", program, HOME=str(tmp_path))
    assert len(entries(tmp_path / ".cache" / "fovea")) == compiled > 0


def test_two_processes_at_once(tmp_path):
    # Both wait for the same moment, and write the same entries.
    moment = f"import time\nimport fovea\nwhile time.time() < {time.time() + 2}: pass\n"
    processes = [start(tmp_path, moment + PROGRAM) for _ in range(2)]
    total = [sum(finish(process)) for process in processes]
    assert total == 2 * [len(entries(tmp_path))]
    assert len(list(tmp_path.iterdir())) == len(entries(tmp_path))
    assert run(tmp_path) == (0, total[0])


@pytest.mark.parametrize("damage", ["truncated", "empty", "a flipped bit", "zeros", "another entry"])
def test_damaged_files_are_replaced(filled, damage):
    paths = entries(filled)
    contents = [path.read_bytes() for path in paths]
    for path, content, other in zip(paths, contents, contents[1:] + contents[:1]):
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 1])
        path.write_bytes(
            {
                "truncated": content[:middle],
                "empty": b"",
                "a flipped bit": content[:middle] + flipped + content[middle + 1 :],
                "zeros": bytes(len(content)),
                "another entry": other,
            }[damage]
        )
    assert run(filled) == (len(paths), 0)
    assert entries(filled) == paths
    assert run(filled) == (0, len(paths))


def test_kernels_for_another_cpu_are_not_found(tmp_path):
    program = """
import sys, fovea
fovea.compile("func.func @f(%a: f32) -> f32 {\\n  return %a : f32\\n}", cpu=CPU)
_, _, misses, loads = fovea._fovea.cache_statistics()
print(misses - loads, loads)
"""
    for cpu in ("native", "x86-64"):
        assert run(tmp_path, program.replace("CPU", repr(cpu))) == (1, 0)
        assert run(tmp_path, program.replace("CPU", repr(cpu))) == (0, 1)


def test_a_folder_that_cannot_be_written_to(filled):
    paths = entries(filled)
    paths[0].unlink()
    filled.chmod(0o500)
    try:
        assert run(filled) == (1, len(paths) - 1)
    finally:
        filled.chmod(0o700)
    # Nobody can make a folder there, whatever rights they have.
    compiled, loaded = run("/proc/self/fovea")
    assert compiled == len(paths) and loaded == 0


def test_files_that_may_not_grow(tmp_path):
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
    compiled, loaded = run(tmp_path, limit + PROGRAM)
    assert compiled > 0 and loaded == 0
    # The smallest ones fit.
    assert all(path.stat().st_size <= 5000 for path in tmp_path.iterdir())


def test_a_full_disk(tmp_path):
    """In a file system of 16 KiB, where processes may have their own."""
    script = f'mount -t tmpfs -o size=16k none {tmp_path} && exec {sys.executable} -c "$PROGRAM"'
    program = PROGRAM + f"print(os.listdir({str(tmp_path)!r}), file=sys.stderr)\n"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        probe = subprocess.run([*command, f"mount -t tmpfs -o size=16k none {tmp_path}"], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if probe.returncode != 0:
        pytest.skip("no mount namespaces")
    environment = {**os.environ, "FOVEA_CACHE_DIR": str(tmp_path), "PROGRAM": program}
    result = subprocess.run([*command, script], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    compiled, loaded = map(int, result.stdout.split())
    kept = result.stderr.count(".kernel")
    assert loaded == 0 and kept < compiled
    # What was begun is gone.
    assert "-" not in result.stderr


def test_the_bound_on_bytes(filled):
    sizes = [path.stat().st_size for path in entries(filled)]
    bound = sum(sizes) // 2
    # Loading makes no room; the next entry that is written does.
    entries(filled)[0].unlink()
    run(filled, FOVEA_CACHE_BYTES=str(bound))
    assert 0 < sum(path.stat().st_size for path in entries(filled)) <= bound
