# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where torch.compile finds the backend "fovea": by its import, and by the entry point of an installed package."""

import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

COMPILE = """
function = torch.nn.functional.scaled_dot_product_attention
q = torch.randn(1, 2, 5, 8)
found = torch.compile(lambda q: function(q, q, q), backend="fovea", options={"rest": "eager"})(q)
assert torch.allclose(found, function(q, q, q), atol=1e-5)
assert "fovea" in torch._dynamo.list_backends()
"""


@pytest.fixture
def installed(tmp_path):
    """A folder with what is known of the package where it is installed."""
    project = tomllib.loads((pathlib.Path(__file__).parents[4] / "python" / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "fovea_attention-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    (group, entries), *_ = project["entry-points"].items()
    (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]))
    return str(tmp_path)


@pytest.mark.parametrize(
    "is_installed, imports",
    [
        (True, "import torch"),
        (True, "import torch, fovea.torch"),
        (False, "import torch; torch._dynamo.list_backends(); import fovea.torch"),
    ],
    ids=["not imported", "imported", "imported after a look"],
)
def test_is_found(is_installed, imports, installed):
    paths = [*([installed] if is_installed else []), os.environ["PYTHONPATH"]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", imports + COMPILE], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
