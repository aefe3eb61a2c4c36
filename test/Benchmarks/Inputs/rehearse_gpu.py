# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs benchmarks/gpu/run.py from beginning to end with a stand-in for PyTorch, and
checks its report: with kernels for the CPU, whose numbers are right, and with kernels
for GPUs, by a driver on which they do nothing."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

compiler, runner, build_folder, folder = *sys.argv[1:3], *map(pathlib.Path, sys.argv[3:])
here = pathlib.Path(__file__).resolve().parent
scripts = here.parents[2] / "benchmarks" / "gpu"
sys.path[:0] = [str(scripts), str(here / "fake")]
import artefacts  # noqa: E402

D, H, G = 16, 4, 2
dense = [[1, H, None, D]] + [[1, G, None, D]] * 2 + [[1, H, None, D]]
multipole, weights = artefacts.multipole(D, 512, 64, 4, H, G)
rows = [[1, H, 512, D]] + [[1, G, 512, D]] * 2
entries = [
    ({"pattern": "dense", "causal": True, "arguments": dense}, artefacts.dense(D, True, H, G)),
    ({"pattern": "dense", "causal": False, "arguments": dense}, artefacts.dense(D, False, H, G)),
    ({"pattern": "fast_multipole", "causal": True, "N": 512, "group": 64, "rank": 4,
      "arguments": rows + [[1, 4, 64 << i, D] for i in range(len(weights))]}, multipole),
    ({"pattern": "vq", "causal": True, "N": 512, "codes": 32, "block": 64, "arguments": rows + [[G, 32, D]]},
     artefacts.vq(D, 512, 32, 64, H, G)),
]
import run  # noqa: E402
import torch  # noqa: E402


def build(name, chips, *flags):
    """Artefacts of all entries, as artefacts.py makes them."""
    into = folder / name
    into.mkdir(parents=True, exist_ok=True)
    manifest = []
    for number, (entry, text) in enumerate(entries):
        entry["gflop"] = artefacts.count(runner, text, entry, [64, 100, 200])
        for chip in chips:
            library = f"{number}-{chip}.so"
            command = [compiler, "-", *flags, "--emit=so", "-o", str(into / library)]
            if "--target=nvvm" in flags:
                command.append(f"--chip={chip}")
            subprocess.run(command, input=text, text=True, check=True)
            manifest.append({"D": D, "chip": chip, "library": library} | entry)
    (into / "manifest.json").write_text(json.dumps(manifest))
    return into, manifest


def measure(artefacts):
    """The report on the artefacts in a folder."""
    report = folder / "report.json"
    sys.argv = ["run.py", str(artefacts), "--runtime", str(build_folder / "lib" / "libfovea_rt.so"), "--seconds=0.001",
                "--lengths", "64", "100", "--peak-rows=64", f"--json={report}"]
    run.main()
    return json.loads(report.read_text())


artefacts_of_cpu, manifest = build("cpu", ["sm_80"], "--target=cpu")
# Code for another GPU only is left out.
(artefacts_of_cpu / "manifest.json").write_text(json.dumps([*manifest, manifest[0] | {"chip": "sm_90a"}]))
report = measure(artefacts_of_cpu)
assert set(report) == {"device", "torch", "peaks", "rows"}, set(report)
lines = [("dense", 64), ("dense", 100), ("dense", 64), ("dense", 100), ("fast_multipole", 512), ("vq", 512)]
assert [(row["pattern"], row["N"]) for row in report["rows"]] == lines
for row in report["rows"]:
    assert all(row[key] > 0 for key in ("seconds", "tflops", "gbps", "of_gemm", "of_copy", "error")), row
    assert ("others" in row) == (row["pattern"] == "dense"), row

# A query and a row that it may read are 4 D operations in each head.
assert [entry["gflop"]["64"] for entry, _ in entries[:2]] == [4e-9 * D * H * 64 * n for n in (65 / 2, 64)]

# Kernels for GPUs, on one that has sm_90a. Their results, which nobody wrote, are noticed.
os.environ.update(FOVEA_LIBCUDA=str(build_folder / "unittests/Runtime/libFoveaFakeCuda.so"), FAKE_CUDA_KERNELS="")
torch.cuda.get_device_capability = lambda: (9, 0)
artefacts_of_gpu, _ = build("gpu", ["sm_80", "sm_90a"], "--target=nvvm")
try:
    measure(artefacts_of_gpu)
    raise SystemExit("kernels that do nothing pass")
except RuntimeError as failure:
    assert "0-sm_80.so: error" in str(failure), failure
run.ERROR_BOUND = float("inf")
report = measure(artefacts_of_gpu)
# PyTorch's default stream is the legacy one, in whose order its own kernels are.
driver = ctypes.CDLL(os.environ["FOVEA_LIBCUDA"])
driver.fakeCudaLastStream.restype = ctypes.c_void_p
assert driver.fakeCudaLastStream() == 1, driver.fakeCudaLastStream()
assert [row["chip"] for row in report["rows"]] == ["sm_80", "sm_80", "sm_90a", "sm_90a"] * 2 + ["sm_80", "sm_90a"] * 2
maps = pathlib.Path("/proc/self/maps")
if maps.exists():
    assert "fovea_rt" in maps.read_text() and not any(name in maps.read_text() for name in ("LLVM", "MLIR"))

print("rehearsed")
