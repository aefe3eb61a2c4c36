# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the files that a run of the smoke suite has written to a folder."""

import json
import pathlib
import sys
import xml.etree.ElementTree

folder = pathlib.Path(sys.argv[1])
results = json.loads((folder / "results.json").read_text())

for name in ("cpu", "cpus", "affinity", "commit", "build", "memory_bytes", "time"):
    assert name in results["machine"], name
assert "CMAKE_BUILD_TYPE" in results["machine"]["build"]
assert "run.py --suite smoke" in results["command"]
assert results["peaks"]["f32_gflops"]["one"]["median"] > 0
assert results["peaks"]["copy_gbytes"]["one"]["median"] > 0

rows = {row["id"]: row for row in results["rows"]}
config = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "config" / "smoke.json"
assert list(rows) == [row["id"] for row in json.loads(config.read_text())["rows"]]
for row in rows.values():
    assert row["passed"], row
    if row["kind"] == "compile":
        assert 0 < row["cache_hit_seconds"]["median"] < row["compile_seconds"]["median"]
        continue
    assert 0 <= row["error"] <= row["error_bound"], row
    # Numbers that are rounded are never exact; codes are.
    assert (row["error"] > 0) != row["id"].startswith("quantize"), row
    assert 0 < row["seconds"]["min"] <= row["seconds"]["median"] <= row["seconds"]["max"]
    assert row["runs"] >= 1  # a busy machine may not have time for more
    rate = row["useful_gflop"] / row["seconds"]["median"]
    assert abs(rate - row["gflops"]["median"]) <= 1e-6 * rate
    # Memory never grows with N x M scores, here of 4 bytes.
    assert 0 <= row["beyond_summaries"] < 1e6, row
assert rows["dense"]["numpy_ratio"] > 0
assert rows["multipole"]["dense_ratio"] > 0
assert rows["dense"]["targets"][0]["is_reached"] in (True, False)
assert results["comparisons"][0]["values"]["median"] > 0

plot = xml.etree.ElementTree.parse(folder / "time-against-n.svg").getroot()
tags = [element.tag.rpartition("}")[2] for element in plot.iter()]
assert tags.count("polyline") == 2 and tags.count("circle") == 2, tags
