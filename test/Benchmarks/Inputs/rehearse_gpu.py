# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs benchmarks/gpu/run.py from beginning to end with kernels for the CPU and a
stand-in for PyTorch, and checks its report."""

import importlib.util
import json
import pathlib
import subprocess
import sys

compiler, build, folder = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
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
folder.mkdir(parents=True, exist_ok=True)
manifest = []
for number, (entry, text) in enumerate(entries):
    library = f"{number}.so"
    subprocess.run([compiler, "-", "--target=cpu", "--emit=so", "-o", str(folder / library)], input=text, text=True, check=True)
    manifest.append({"D": D, "chip": "sm_80", "library": library} | entry)
# Code for another GPU only is left out.
manifest.append(manifest[0] | {"chip": "sm_90a"})
(folder / "manifest.json").write_text(json.dumps(manifest))

import run  # noqa: E402

report = folder / "report.json"
sys.argv = ["run.py", str(folder), "--runtime", str(build / "lib" / "libfovea_rt.so"), "--seconds=0.001",
            "--lengths", "64", "100", "--peak-rows=64", f"--json={report}"]
run.main()
report = json.loads(report.read_text())
assert set(report) == {"device", "torch", "peaks", "rows"}, set(report)
assert [(row["pattern"], row["N"]) for row in report["rows"]] == [
    ("dense", 64), ("dense", 100), ("dense", 64), ("dense", 100), ("fast_multipole", 512), ("vq", 512)]
for row in report["rows"]:
    assert all(row[key] > 0 for key in ("seconds", "tflops", "gbps", "of_gemm", "of_copy")), row
    assert ("error" in row) == ("others" in row) == (row["pattern"] == "dense"), row
# Queries times rows that they may read, also as the reference counts them.
assert run.count_pairs(manifest[0], 7) == 28 and run.count_pairs(manifest[1], 7) == 49
spec = importlib.util.spec_from_file_location("fovea_reference", scripts.parents[1] / "python" / "fovea" / "reference" / "__init__.py")
reference = sys.modules["fovea_reference"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)
assert 4 * D * run.count_pairs(manifest[2], 512) == reference.fast_multipole_flops(512, 64, 4, D, D, causal=True)[0]
print("rehearsed")
