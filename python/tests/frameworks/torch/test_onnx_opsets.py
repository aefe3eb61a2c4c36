# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of ONNX of old versions."""

import math

import numpy as np
import pytest

import fovea

onnx = pytest.importorskip("onnx", reason="pip install onnx")
pytest.importorskip("torch_mlir", reason="pip install torch-mlir")
from test_onnx import FLOAT, RNG, helper, make_model, near  # noqa: E402


def test_oldest_models():
    """Of version 3, in which constants are always listed as inputs."""
    model = make_model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [("x", FLOAT, ("n", 4)), ("w", FLOAT, (4,))], [("y", FLOAT, ("n", 4))],
        [("w", np.arange(4, dtype=np.float32))], version=8, ir_version=3,
    )  # fmt: skip
    near(fovea.import_onnx(model)(np.ones((2, 4), np.float32)), np.tile(np.float32([1, 2, 3, 4]), (2, 1)))


@pytest.mark.parametrize("version", [8, 9, 11, 12])
def test_old_operations(version):
    """Those that networks for images were of are converted to what torch-mlir knows."""
    scale, bias, mean, variance = weights = RNG.random((4, 4), np.float32)
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "variance"], ["n"]),
        helper.make_node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Concat", ["p", "p"], ["c"], axis=1), helper.make_node("Dropout", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["f"]), helper.make_node("LogSoftmax", ["f"], ["y"]),
    ]  # fmt: skip
    model = make_model(
        nodes, [("x", FLOAT, ("n", 4, 6, 6))], [("y", FLOAT, ("n", 72))],
        zip(("scale", "bias", "mean", "variance"), weights), version=version, ir_version=4,
    )  # fmt: skip
    x = RNG.standard_normal((3, 4, 6, 6), np.float32)
    found = (x - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5) * scale[:, None, None] + bias[:, None, None]
    found = np.tile(found.reshape(3, 4, 3, 2, 3, 2).max((3, 5)), (1, 2, 1, 1)).reshape(3, -1)
    near(fovea.import_onnx(model)(x), found - np.log(np.exp(found).sum(-1, keepdims=True)))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
def test_axes_that_were_one(name, axis):
    """Until opset 13 the axis given was the first of several."""
    x = RNG.standard_normal((3, 4, 5), np.float32)
    model = make_model([helper.make_node(name, ["x"], ["y"], axis=axis)], [("x", FLOAT, "abc")], [("y", FLOAT, "abc")], version=11)
    rows = np.exp(x.reshape(math.prod(x.shape[:axis]), -1))
    rows /= rows.sum(-1, keepdims=True)
    expected = {"Softmax": rows, "LogSoftmax": np.log(rows), "Hardmax": np.float32(rows == rows.max(-1, keepdims=True))}[name]
    near(fovea.import_onnx(model)(x), expected.reshape(x.shape))


@pytest.mark.parametrize("name, version", [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_ways_of_resizing(mode, name, version):
    """Places are those of results by the scale."""
    model = make_model(
        [helper.make_node(name, ["x", "scales"], ["y"], mode=mode)], [("x", FLOAT, (1, 2, 6, 8))], [("y", FLOAT, (1, 2, 9, 16))],
        [("scales", np.float32([1, 1, 1.5, 2]))], version=version,
    )  # fmt: skip
    x = expected = RNG.standard_normal((1, 2, 6, 8), np.float32)
    for axis, scale in ((2, 1.5), (3, 2)):
        places = np.arange(int(x.shape[axis] * scale)) / scale
        first = np.floor(places).astype(int)
        rest = (places - first if mode == "linear" else 0 * places).reshape((-1,) + (1,) * (3 - axis))
        expected = expected.take(first, axis) * (1 - rest) + expected.take(first + 1, axis, mode="clip") * rest
    near(fovea.import_onnx(model)(x), expected.astype(np.float32))


@pytest.mark.parametrize("version", [8, 13, 17, 20])
def test_operations_that_became_functions(version):
    model = make_model([helper.make_node("Softsign", ["x"], ["y"])], [("x", FLOAT, "n")], [("y", FLOAT, "n")], version=version)
    x = RNG.standard_normal(7, np.float32)
    near(fovea.import_onnx(model)(x), x / (1 + np.abs(x)))
