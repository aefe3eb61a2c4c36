# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of ONNX that are others for torch-mlir."""

import numpy as np
import pytest

import fovea

onnx = pytest.importorskip("onnx", reason="pip install onnx")
pytest.importorskip("torch_mlir", reason="pip install torch-mlir")
from test_onnx import FLOAT, INT64, RNG, helper, make_model, near  # noqa: E402


@pytest.mark.parametrize("version", [17, 21])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 0])
def test_norms_of_zeros(axis, p, version):
    """What has no direction stays as it is, and NaN shows."""
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    x[1], x[:, 2] = 0, 0
    node = helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=p)
    program = fovea.import_onnx(make_model([node], [("x", FLOAT, ("rows", 4))], [("y", FLOAT, ("rows", 4))], version=version))
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    near(program(x), x / np.where(norm == 0, 1, norm))
    x[0, 0] = np.nan
    assert np.isnan(program(x)[0, 0])


@pytest.mark.parametrize("version", [17, 21])
@pytest.mark.parametrize("type", [np.float32, np.float16], ids=["f32", "f16"])
@pytest.mark.parametrize("name, options", [("InstanceNormalization", {}), ("GroupNormalization", {"num_groups": 2})])
def test_normalization_of_open_images(name, options, type, version):
    """Means are of all elements, whatever is known of their number: `nn.GroupNorm` is exported as either."""
    if name == "GroupNormalization" and version < 21:
        pytest.skip("it had other operands")
    x = (RNG.standard_normal((2, 6, 5, 4)) + 3).astype(type)
    scale, bias = (RNG.standard_normal(6).astype(type) for _ in range(2))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(type))
    node = helper.make_node(name, ["x", "scale", "bias"], ["y"], epsilon=1e-3, **options)
    for extents in (2, 6, 5, 4), ("batch", 6, "height", "width"), (2, 6, "height", 4), ("batch", "channels", "height", "width"):
        values = [("x", element, extents)], [("y", element, extents)]
        program = fovea.import_onnx(make_model([node], *values, [("scale", scale), ("bias", bias)], version=version))
        groups = x.astype(np.float32).reshape(2, options.get("num_groups", 6), -1)
        variance = groups.var(-1, keepdims=True)
        expected = ((groups - groups.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-3)).reshape(x.shape)
        expected = expected * scale[:, None, None].astype(np.float32) + bias[:, None, None]
        near(program(x).astype(np.float32), expected.astype(np.float32), 1e-5 if type == np.float32 else 3e-3)


@pytest.mark.parametrize("extents", [(2, 6, 5, 7), ("n", 6, "h", "w"), ("n", "c", "h", "w"), ("n", "c", "h")], ids=str)
@pytest.mark.parametrize("size", [1, 4, 5])
def test_normalization_of_channels(size, extents):
    """Of an even number there is one more after than before."""
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.1, beta=0.7, bias=1.2)
    model = make_model([node], [("x", FLOAT, extents)], [("y", FLOAT, extents)])
    x = RNG.standard_normal((2, 6, 5, 7)[: len(extents)], np.float32)
    squares = [(x[:, max(0, at - (size - 1) // 2) : at + size // 2 + 1] ** 2).sum(1) for at in range(6)]
    near(fovea.import_onnx(model)(x), (x / (1.2 + 0.1 / size * np.stack(squares, 1)) ** 0.7).astype(np.float32))


@pytest.mark.parametrize("type", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_the_width(direction, type):
    element, width = helper.np_dtype_to_tensor_dtype(np.dtype(type)), 8 * np.dtype(type).itemsize
    x, by = np.array([7, 200, 255, 255, 255], type), np.array([1, width - 1, width, width + 1, -1 & (2**width - 1)], type)
    node = helper.make_node("BitShift", ["x", "by"], ["y"], direction=direction)
    program = fovea.import_onnx(make_model([node], [("x", element, (5,)), ("by", element, (5,))], [("y", element, (5,))]))
    expected = {"LEFT": [14, 0, 0, 0, 0], "RIGHT": [3, 200 >> width - 1, 0, 0, 0]}[direction]
    assert program(x, by).tolist() == expected


@pytest.mark.parametrize("tail", [(), (4,), (4, 2)], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_gathers_by_open_indices(count, tail):
    """As transformers look up positions of Whisper."""
    extents = (5, 3)[:count]
    data = RNG.standard_normal((*extents, *tail), np.float32)
    indices = RNG.integers(0, 3, (2, 7, count))
    node = helper.make_node("GatherND", ["data", "indices"], ["y"])
    values = [("data", FLOAT, ("rows", *data.shape[1:])), ("indices", INT64, ("b", "n", count))]
    program = fovea.import_onnx(make_model([node], values, [("y", FLOAT, ("b", "n", *tail))]))
    for chosen in (indices, indices[:1, :1], indices - 3):
        near(program(data, chosen), data[tuple(np.moveaxis(chosen, -1, 0))])


@pytest.mark.parametrize("extents", [("n",), ("a", "b")], ids=str)
def test_gathers_from_open_extents(extents):
    """As embeddings of last tokens are picked by batch and length."""
    node = helper.make_node("GatherND", ["data", "indices"], ["y"])
    inputs = [("data", FLOAT, ("batch", "length", 4)), ("indices", INT64, (*extents, 2))]
    program = fovea.import_onnx(make_model([node], inputs, [("y", FLOAT, (*extents, 4))]))
    for batch, length in ((3, 5), (1, 7), (2, 1)):
        data = RNG.standard_normal((batch, length, 4), np.float32)
        sizes = (3, 2)[: len(extents)]
        indices = np.stack([RNG.integers(-batch, batch, sizes), RNG.integers(-length, length, sizes)], -1)
        near(program(data, indices), data[tuple(np.moveaxis(indices, -1, 0))])
        indices.flat[1] = length
        with pytest.raises(fovea.FoveaError, match="out of bounds"):
            program(data, indices)


@pytest.mark.parametrize("is_constant", [False, True], ids=["input", "constant"])
def test_expansions_by_fewer_extents(is_constant):
    """They are those of the last axes."""
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    inputs, sizes = [("x", FLOAT, ("a", "b", 1)), ("s", INT64, (1,))], np.array([3])
    constants = [("s", sizes)] if is_constant else []
    program = fovea.import_onnx(make_model([node], inputs[: 2 - is_constant], [("y", FLOAT, ("a", "b", "c"))], constants))
    x = RNG.standard_normal((2, 4, 1), np.float32)
    near(program(*((x,) if is_constant else (x, sizes))), x.repeat(3, -1))


def test_constants_of_bits():
    """Whose text has another form in torch-mlir than here."""
    bits, x = RNG.random((20, 33)) > 0.5, RNG.standard_normal((20, 33), np.float32)
    node = helper.make_node("Where", ["bits", "x", "other"], ["y"])
    constants = [("bits", bits), ("other", np.float32(7))]
    program = fovea.import_onnx(make_model([node], [("x", FLOAT, ("n", 33))], [("y", FLOAT, (20, 33))], constants))
    near(program(x), np.where(bits, x, np.float32(7)))


@pytest.mark.parametrize("is_reset_first", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_of_recurrent_layers(direction, is_reset_first):
    """Of `GRU`, of which torch-mlir has one."""
    count = 2 if direction == "bidirectional" else 1
    shapes = {"w": (count, 9, 4), "r": (count, 9, 3), "b": (count, 18), "h": (count, 2, 3)}
    given = {name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    x = RNG.standard_normal((5, 2, 4), np.float32)
    node = helper.make_node(
        "GRU", ["x", "w", "r", "b", "", "h"], ["y", "last"], hidden_size=3, direction=direction, linear_before_reset=int(is_reset_first)
    )
    outputs = [("y", FLOAT, (5, count, 2, 3)), ("last", FLOAT, (count, 2, 3))]
    inputs = [("x", FLOAT, x.shape), *((name, FLOAT, each.shape) for name, each in given.items())]
    y, last = fovea.import_onnx(make_model([node], inputs, outputs))(x, *given.values())
    for k in range(count):
        w, r, b, h = (each[k].astype(np.float64) for each in given.values())
        is_turned = direction == "reverse" or k == 1
        for step in range(5)[::-1] if is_turned else range(5):
            update, reset, new = np.split(x[step] @ w.T + b[:9], 3, -1)
            bias = np.split(b[9:], 3)
            weights = np.split(r, 3)
            update, reset = (1 / (1 + np.exp(-each - h @ weights[i].T - bias[i])) for i, each in enumerate((update, reset)))
            new = np.tanh(new + (reset * (h @ weights[2].T + bias[2]) if is_reset_first else (reset * h) @ weights[2].T + bias[2]))
            h = (1 - update) * new + update * h
            near(y[step, k], h.astype(np.float32))
        near(last[k], h.astype(np.float32))


@pytest.mark.parametrize("is_constant", [False, True], ids=["input", "constant"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_padding(mode, is_open, is_constant):
    """By numbers that are known or not, also below 0; torch-mlir does not end for `wrap`, which `padding_mode="circular"` is."""
    x = RNG.standard_normal((2, 3, 5, 4), np.float32)
    extents = ("b", "c", "h", "w") if is_open else x.shape
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    for before, after in (((0, 0, 1, 2), (0, 0, 2, 1)), ((0, 1, 0, -1), (0, 0, -2, 3)), ((0,) * 4, (0,) * 4)):
        pads = np.array([*before, *after])
        inputs = [("x", FLOAT, extents), ("pads", INT64, (8,))][: 2 - is_constant]
        constants = [("pads", pads)] if is_constant else []
        program = fovea.import_onnx(make_model([node], inputs, [("y", FLOAT, ("b2", "c2", "h2", "w2"))], constants))
        found = program(*((x,) if is_constant else (x, pads)))
        wide = [(max(first, 0), max(last, 0)) for first, last in zip(before, after)]
        if mode == "constant":
            expected = np.pad(x, wide)[tuple(slice(max(-first, 0), min(last, 0) or None) for first, last in zip(before, after))]
        else:
            # Places outside count from the whole of an axis.
            expected = x
            for axis, (first, last) in enumerate(zip(before, after)):
                places = np.pad(np.arange(x.shape[axis]), wide[axis], mode=mode)[max(-first, 0) : min(last, 0) or None]
                expected = expected.take(places, axis)
        near(found, expected)


@pytest.mark.parametrize("name, options", [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})], ids=str)
@pytest.mark.parametrize("divisor", [2, 7])
def test_quotients_of_negative_extents(divisor, name, options):
    """As `-height % 2`, by which images are padded: extents are computed as tensors or as numbers."""
    nodes = [
        helper.make_node("Shape", ["x"], ["extent"]), helper.make_node("Squeeze", ["extent"], ["number"]),
        helper.make_node("Mul", ["number", "minus"], ["negative"]), helper.make_node(name, ["negative", "divisor"], ["rest"], **options),
        helper.make_node("Add", ["rest", "more"], ["sum"]), helper.make_node("Reshape", ["sum", "list"], ["shape"]),
        helper.make_node("Expand", ["one", "shape"], ["y"]),
    ]  # fmt: skip
    numbers = {"minus": -1, "divisor": divisor, "more": 40, "list": [-1]}
    constants = [("one", np.ones((), np.float32)), *((key, np.array(each)) for key, each in numbers.items())]
    program = fovea.import_onnx(make_model(nodes, [("x", FLOAT, "n")], [("y", FLOAT, "m")], constants))
    expected = {"Div": lambda n: -(n // divisor), "Mod": lambda n: -n % divisor}.get(name)
    for count in (18, 19, 21):
        number = -(count % divisor) if options else expected(count)
        assert program(np.zeros(count, np.float32)).shape == (40 + number,)


@pytest.mark.parametrize("extents", [(2, 12, 3, 5), ("b", 12, "h", "w"), ("b", "c", "h", "w")], ids=str)
@pytest.mark.parametrize("mode", ["CRD", "DCR"])
def test_depth_to_space(mode, extents):
    """Where channels come first as well, as `nn.PixelShuffle` is exported."""
    node = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode)
    program = fovea.import_onnx(make_model([node], [("x", FLOAT, extents)], [("y", FLOAT, ("b", "c2", "h2", "w2"))]))
    x = RNG.standard_normal((2, 12, 3, 5), np.float32)
    parts = x.reshape(2, 3, 2, 2, 3, 5) if mode == "CRD" else x.reshape(2, 2, 2, 3, 3, 5).transpose(0, 3, 1, 2, 4, 5)
    near(program(x), parts.transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 6, 10))


@pytest.mark.parametrize("extents", [(2, 3, 8, 11), ("b", "c", "h", "w")], ids=str)
@pytest.mark.parametrize("counted", [0, 1])
def test_averages_behind_the_input(counted, extents):
    """Of what lies inside, where windows reach behind it: `nn.AvgPool2d(3, 2, ceil_mode=True)`."""
    node = helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=counted
    )  # fmt: skip
    program = fovea.import_onnx(make_model([node], [("x", FLOAT, extents)], [("y", FLOAT, ("b", "c", "h2", "w2"))]))
    x = RNG.standard_normal((2, 3, 8, 11), np.float32)
    expected = np.stack([np.stack([x[:, :, i : i + 3, j : j + 3].mean((2, 3)) for j in range(0, 10, 2)], -1) for i in (0, 2, 4, 6)], -2)
    near(program(x), expected)
