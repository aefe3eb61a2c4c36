# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of ONNX as programs, and their attention."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import fovea
from fovea import _import_tool

onnx = pytest.importorskip("onnx", reason="pip install onnx")
pytest.importorskip("torch_mlir", reason="pip install torch-mlir")
from onnx.reference import ReferenceEvaluator  # noqa: E402

helper, FLOAT, INT64, BOOL = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
RNG = np.random.default_rng(0)


def find_attention(text, *options):
    """The module with its attention raised."""
    passes = ["--inline", "--canonicalize", "--cse", "--canonicalize", "--attn-raise", "--canonicalize", *options]
    command = "import sys; from fovea._fovea import run_tool; sys.exit(run_tool('fovea-opt', sys.argv[1:]))"
    found = subprocess.run([sys.executable, "-c", command, "-", *passes], input=text, capture_output=True, text=True, check=True)
    return found.stdout


def near(found, expected, bound=1e-5):
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.abs(found - expected).max() <= bound * max(1, np.abs(expected).max())


# ----------------------------------------------------------------------------
# The operation
# ----------------------------------------------------------------------------

SHAPES = {
    "many": ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)),
    "grouped": ((2, 6, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)),
    "one": ((1, 3, 9, 4), (1, 1, 9, 4), (1, 1, 9, 4)),
    "flat": ((2, 5, 32), (2, 7, 16), (2, 7, 24)),
}
#: Attributes, extents of the mask, whether keys of before, and whether lengths are given. The reference takes no mask of one row together
#: with is_causal.
CASES = {
    "plain": ("many", {}, None, False, False),
    "scale": ("grouped", {"scale": 0.2}, None, False, False),
    "causal": ("grouped", {"is_causal": 1}, None, False, False),
    "causal, fewer queries": ("many", {"is_causal": 1}, None, False, False),
    "flat": ("flat", {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, None, False, False),
    "flat, past": ("flat", {"q_num_heads": 4, "kv_num_heads": 2}, None, True, False),
    "cap": ("one", {"softcap": 2.0, "is_causal": 1}, None, False, False),
    "bool": ("grouped", {}, (2, 1, 5, 5), False, False),
    "bool of heads": ("grouped", {"is_causal": 1}, (1, 6, 5, 5), False, False),
    "bias": ("many", {}, (5, 7), False, False),
    "bias of heads": ("grouped", {"softcap": 3.0}, (1, 6, 5, 5), False, False),
    "past": ("many", {"is_causal": 1}, None, True, False),
    "lengths": ("many", {}, None, False, True),
    "lengths, causal": ("grouped", {"is_causal": 1}, None, False, True),
}


def make_operation(name):
    """A model of one attention, and inputs."""
    shapes, attributes, mask, past, lengths = CASES[name]
    arrays = {name: RNG.standard_normal(shape, np.float32) for name, shape in zip("QKV", SHAPES[shapes])}
    B, width = arrays["K"].shape[0], 2 if shapes == "flat" else arrays["K"].shape[1]
    if mask:
        # Row 1 has no key in masks of pairs.
        bias = RNG.standard_normal(mask, np.float32)
        arrays["mask"] = bias > 0 if name.startswith("bool") else bias
        if mask[-2] > 1 and name.startswith("bool"):
            arrays["mask"][..., 1, :] = False
    if past:
        for key, now in (("past_key", "K"), ("past_value", "V")):
            columns = arrays[now].shape[-1] // (width if shapes == "flat" else 1)
            arrays[key] = RNG.standard_normal((B, width, 3, columns), np.float32)
    if lengths:
        arrays["lengths"] = np.array([5, 3], np.int64)
    order = ["Q", "K", "V", "mask", "past_key", "past_value", "lengths"]
    inputs = [each if each in arrays else "" for each in order]
    while not inputs[-1]:
        inputs.pop()
    outputs = ["Y", "present_key", "present_value"] if past else ["Y"]
    node = helper.make_node("Attention", inputs, outputs, **attributes)
    given = [
        helper.make_tensor_value_info(each, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for each, array in arrays.items()
    ]
    ranks = [len(SHAPES[shapes][0]), 4, 4]
    results = [helper.make_tensor_value_info(each, FLOAT, [f"{each}{k}" for k in range(rank)]) for each, rank in zip(outputs, ranks)]
    model = helper.make_model(helper.make_graph([node], "g", given, results), opset_imports=[helper.make_opsetid("", 24)])
    return model, arrays


def as_generic(model, arrays, results):
    """The same as an operation of onnx-mlir."""
    names = {"float32": "f32", "int64": "i64", "bool": "i1"}

    def spell(array):
        return f"tensor<{'x'.join([*map(str, array.shape), names[array.dtype.name]])}>"

    node = model.graph.node[0]
    arguments = ", ".join(f"%{each}: {spell(array)}" for each, array in arrays.items())
    operands = ", ".join(f"%{each}" if each else "%none" for each in node.input)
    types = ", ".join(spell(arrays[each]) if each else "none" for each in node.input)
    attributes = [
        f"{each.name} = {each.i} : si64" if each.type == onnx.AttributeProto.INT else f"{each.name} = {each.f:e} : f32"
        for each in node.attribute
    ]
    returned = ", ".join(map(spell, results))
    values = ", ".join(f"%0#{k}" for k in range(len(results))) if len(results) > 1 else "%0"
    none = "" if all(node.input) else '%none = "onnx.NoValue"() : () -> none'
    return f"""func.func @main({arguments}) -> ({returned}) {{
  {none}
  %0{f":{len(results)}" if len(results) > 1 else ""} = "onnx.Attention"({operands}) {{{", ".join(attributes)}}} : ({types}) -> ({returned})
  return {values} : {returned}
}}"""


def run(program, arrays):
    found = program(*arrays.values())
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", CASES)
def test_attention(name):
    """What ONNX's own reference computes, both of a file and of the operation in IR."""
    model, arrays = make_operation(name)
    expected = ReferenceEvaluator(model).run(None, arrays)
    program = fovea.import_onnx(model)
    assert program.names == tuple(arrays)
    raised = find_attention(as_generic(model, arrays, expected), "--allow-unregistered-dialect")
    assert raised.count("attn.dense") == 1 and "onnx.Attention" not in raised
    for found in (run(program, arrays), run(fovea.compile(raised), arrays)):
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected):
            near(mine, theirs)
    # Heads are known, and shared as they are: keys are not repeated.
    (dense,) = (each for each in find_attention(program.text).splitlines() if "attn.dense" in each)
    q, k, _ = SHAPES[CASES[name][0]]
    heads = [4, 2] if len(q) == 3 else [q[1], k[1]]
    assert [int(each) for each in re.findall(r"tensor<\d+x(\d+)x\d+x\d+xf32>", dense)[:2]] == heads


# ----------------------------------------------------------------------------
# Models of PyTorch
# ----------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        B, N, width = x.shape
        q, k, v = (each.view(B, N, self.heads, -1).transpose(1, 2) for each in self.qkv(self.norms[0](x)).chunk(3, -1))
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(B, N, width))
        return x + self.feed(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.blocks, self.norm = nn.Sequential(Block(32, 4), Block(32, 4)), nn.LayerNorm(32)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model, and files with it in versions of ONNX without and with an operation for attention."""
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    torch.manual_seed(0)
    model, files = Transformer().eval(), {}
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")},)
    for version in (18, 23):
        files[version] = tmp_path_factory.mktemp("onnx") / "gpt.onnx"
        torch.onnx.export(
            model, (torch.zeros(2, 9, dtype=torch.int64),), files[version], opset_version=version, dynamo=True, verbose=False,
            external_data=version == 23, dynamic_shapes=shapes,
        )  # fmt: skip
    return model, files


def ids(*shape):
    return torch.from_numpy(RNG.integers(0, 50, shape))


@pytest.mark.parametrize("version", [18, 23])
def test_transformer(exported, version, tmp_path, capsys):
    model, files = exported
    path = tmp_path / "model.mlir"
    assert _import_tool.main([str(files[version]), "-o", str(path), "--extent=batch=2", "--extent=length=13"]) == 0
    assert not capsys.readouterr().err
    program, x = fovea.load(path), ids(2, 13)
    with torch.no_grad():
        near(program(x), model(x).numpy())
    assert program.names == ("ids",) and len(program.constants) > 10
    # No weights in the text.
    assert len(program.text) < 100_000
    assert find_attention(program.text).count("attn.dense") == 2


@pytest.mark.parametrize("version", [18, 23])
def test_any_length(exported, version):
    model, files = exported
    program = fovea.load(files[version])
    for shape in (2, 13), (1, 1), (3, 32):
        x = ids(*shape)
        with torch.no_grad():
            near(program(x), model(x).numpy())
    assert find_attention(program.text).count("attn.dense") == 2


# ----------------------------------------------------------------------------
# Constants
# ----------------------------------------------------------------------------


def make_model(nodes, inputs, outputs, initializers=(), version=20, **options):
    graph = helper.make_graph(
        nodes, "any name: 1", [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs], [onnx.numpy_helper.from_array(a, n) for n, a in initializers],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version), helper.make_opsetid("ours", 1)], **options)


def test_masks_stay_in_the_text():
    """So they are evaluated; weights are arguments."""
    mask = np.where(np.tri(16, dtype=bool), np.float32(0), np.float32(-1e10))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]), helper.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Add", ["s", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]  # fmt: skip
    w = RNG.standard_normal((12, 12), np.float32) * np.float32(0.1)
    model = make_model(nodes, [("x", FLOAT, (2, 16, 12))], [("y", FLOAT, (2, 16, 12))], [("w", w), ("mask", mask)])
    program, x = fovea.import_onnx(model), RNG.standard_normal((2, 16, 12), np.float32)
    near(program(x), ReferenceEvaluator(model).run(None, {"x": x})[0])
    assert [*program.constants] == ["w"]
    assert "mask = #attn.mask<causal>" in find_attention(program.text)


def test_functions_of_models_and_old_inputs():
    """Functions are inlined; constants that old models list as inputs are none."""
    twice = helper.make_function(
        "ours", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    w, c = RNG.standard_normal((40, 40), np.float32), RNG.standard_normal((3, 40), np.float32)
    nodes = [
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(c)), helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "c"], ["s"]), helper.make_node("Twice", ["s"], ["y"], domain="ours"),
    ]  # fmt: skip
    model = make_model(nodes, [("x", FLOAT, (3, 40)), ("w", FLOAT, (40, 40))], [("y", FLOAT, (3, 40))], [("w", w)], functions=[twice])
    x = RNG.standard_normal((3, 40), np.float32)
    program = fovea.import_onnx(model)
    assert program.names == ("x",) and sorted(program.constants) == ["c", "w"]
    near(program(x), 2 * (x @ w + c))


@pytest.mark.parametrize("is_computed", [False, True], ids=["constant", "computed"])
@pytest.mark.parametrize("last, sizes", [((4, 16), (64,)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (2, 12)), ((6,), (6,)), ((8,), (32,))], ids=str)
def test_reshapes_of_unknown_extents(last, sizes, is_computed):
    """As at the end of attention, whose tokens and heads become rows; several heads may be in one row of a batch."""
    x, y = ("x", FLOAT, ["length", "batch", *last]), ("y", FLOAT, ["rows", *sizes])
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    constants = [("shape", np.array((-1, *sizes)))]
    if is_computed:
        # Rows of the first axis, and how many of it there are in one.
        constants = [("sizes", np.array(sizes)), ("ratio", np.array([math.prod(sizes) // math.prod(last)]))]
        nodes = [
            helper.make_node("Shape", ["x"], ["length"], start=0, end=1), helper.make_node("Shape", ["x"], ["batch"], start=1, end=2),
            helper.make_node("Mul", ["length", "batch"], ["all"]), helper.make_node("Div", ["all", "ratio"], ["rows"]),
            helper.make_node("Concat", ["rows", "sizes"], ["shape"], axis=0), *nodes,
        ]  # fmt: skip
    program = fovea.import_onnx(make_model(nodes, [x], [y], constants))
    for extents in ((3, 4), (1, 8), (4, 1)):
        array = RNG.standard_normal((*extents, *last)).astype(np.float32)
        np.testing.assert_array_equal(program(array), array.reshape(-1, *sizes))


def test_slices_by_unknown_bounds():
    """Other axes keep their extents, as that of 1 which is expanded to a batch, like positions of BERT."""
    nodes = [
        helper.make_node("Shape", ["x"], ["batch"], start=0, end=1), helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["all", "zero", "length", "one"], ["some"]),
        helper.make_node("Concat", ["batch", "length"], ["s"], axis=0), helper.make_node("Expand", ["some", "s"], ["each"]),
        helper.make_node("Add", ["x", "each"], ["y"]),
    ]  # fmt: skip
    everything = RNG.standard_normal((1, 80), np.float32)
    extents = ("batch", "length")
    constants = [("all", everything), ("zero", np.array([0])), ("one", np.array([-1]))]
    program = fovea.import_onnx(make_model(nodes, [("x", FLOAT, extents)], [("y", FLOAT, extents)], constants))
    for shape in ((3, 7), (1, 80)):
        x = RNG.standard_normal(shape, np.float32)
        near(program(x), x + everything[:, : shape[1]])


def test_normalization_of_unknown_extents():
    """Its axes depend on how many there are, which is known."""
    w = RNG.standard_normal(5, np.float32)
    node = helper.make_node("RMSNormalization", ["x", "w"], ["y"], axis=-1)
    extents = ("batch", "length", 5)
    model = make_model([node], [("x", FLOAT, extents)], [("y", FLOAT, extents)], [("w", w)], version=23)
    program, x = fovea.import_onnx(model), RNG.standard_normal((2, 3, 5), np.float32)
    near(program(x), x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * w)


@pytest.mark.parametrize(
    "node, type, message",
    [
        (helper.make_node("Div", ["x", "x"], ["y"]), np.uint8, "Div with unsigned integers"),
        (helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD"), np.float32, "SpaceToDepth with the mode CRD"),
        (helper.make_node("ArgMax", ["x"], ["y"], select_last_index=1), np.float32, "ArgMax with select_last_index of unknown extents"),
        (helper.make_node("RNN", ["s", "w", "w", "", "n"], ["y"], hidden_size=4), np.float32, "RNN with sequence_lens"),
        (helper.make_node("RNN", ["s", "w", "w"], ["y"], hidden_size=4, clip=1.0), np.float32, "RNN with clip"),
        (
            helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1] * 4, ceil_mode=1, count_include_pad=1),
            np.float32, "AveragePool with ceil_mode and count_include_pad",
        ),
        (helper.make_node("GRU", ["u", "w", "w"], ["y"], hidden_size=4), np.float32, "GRU with unknown extents"),
        (helper.make_node("GridSample", ["x", "g"], ["y"], mode="nearest"), np.float32, "GridSample with the mode nearest"),
        (helper.make_node("DequantizeLinear", ["q", "steps", "zeros"], ["y"]), np.uint8, "DequantizeLinear with unsigned integers"),
    ],
)  # fmt: skip
def test_what_torch_mlir_gets_wrong(node, type, message):
    element = helper.np_dtype_to_tensor_dtype(np.dtype(type))
    extents = {"x": ("batch", 4, 4, 4), "s": (3, 2, 4), "u": (3, "batch", 4), "g": (1, 4, 4, 2), "q": (3, 4, 1, 1)}
    ones = np.ones((1, 4, 4), np.float32)
    constants = {"w": ones, "n": np.array([3, 2], np.int32), "steps": ones[0, 0], "zeros": np.ones(4, np.uint8)}
    inputs = [(name, element if name != "g" else FLOAT, extents[name]) for name in dict.fromkeys(node.input) if name in extents]
    result = {"ArgMax": INT64, "DequantizeLinear": FLOAT}.get(node.op_type, element)
    given = [(name, constants[name]) for name in dict.fromkeys(node.input) if name in constants]
    version = 28 if node.op_type == "SpaceToDepth" else 21
    with pytest.raises(fovea.FoveaError, match=f"^model: torch-mlir has no right linalg for {message}"):
        fovea.import_onnx(make_model([node], inputs, [("y", result, ["a", "b", "c", "d"])], given, version=version))


@pytest.mark.parametrize("options", [{"alpha": 0.5}, {"transBatchA": 1}], ids=str)
def test_products_of_onnx_runtime(options):
    """By factors and ways that torch-mlir leaves out."""
    nodes = [helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1, **each) for each in ({}, options)]
    models = [make_model([each], [("x", FLOAT, (2, 3, 4))], [("y", FLOAT, "abc")]) for each in nodes]
    for model in models:
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = RNG.standard_normal((2, 3, 4), np.float32)
    near(fovea.import_onnx(models[0])(x), x @ x.swapaxes(1, 2))
    with pytest.raises(fovea.FoveaError, match=f"torch-mlir has no right linalg for FusedMatMul with {[*options][0]}"):
        fovea.import_onnx(models[1])


def make_branches(nodes, type):
    """`nodes`, which compute `t` of `x`, if `c`, else `x`."""
    result = [helper.make_tensor_value_info("t", type, (1, 4))]
    branches = {"then_branch": helper.make_graph(nodes, "then", [], result)}
    branches["else_branch"] = helper.make_graph([helper.make_node("Identity", ["x"], ["t"])], "else", [], result)
    inputs = [("c", onnx.TensorProto.BOOL, ()), ("x", type, (1, 4))]
    return make_model([helper.make_node("If", ["c"], ["y"], **branches)], inputs, [("y", type, (1, 4))])


def test_graphs_within_operations():
    """What torch-mlir gets wrong is looked for there, too."""
    double = helper.make_node("Add", ["x", "x"], ["d"])
    with pytest.raises(fovea.FoveaError, match="^model: torch-mlir has no right linalg for Div with unsigned integers"):
        fovea.import_onnx(make_branches([double, helper.make_node("Div", ["d", "x"], ["t"])], onnx.TensorProto.UINT8))
    program = fovea.import_onnx(make_branches([helper.make_node("LpNormalization", ["x"], ["t"])], FLOAT))
    for x, expected in ((np.zeros((1, 4), np.float32), 0), (np.ones((1, 4), np.float32), 0.5)):
        near(program(np.array(True), x), np.full((1, 4), expected, np.float32))


def test_what_is_computed_from_constants():
    """Weights of 8 bits are floating point when importing, and no text either."""
    w, e = RNG.integers(-100, 100, (40, 30)).astype(np.int8), RNG.standard_normal((30, 20), np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]), helper.make_node("MatMul", ["x", "d"], ["h"]),
        helper.make_node("MatMul", ["h", "e"], ["y"]),
    ]  # fmt: skip
    constants = [("w", w), ("s", np.float32(0.02)), ("e", e)]
    model = make_model(nodes, [("x", FLOAT, ("n", 40))], [("y", FLOAT, ("n", 20))], constants)
    program, x = fovea.import_onnx(model), RNG.standard_normal((3, 40), np.float32)
    assert [*program.constants] == ["d", "e"] and program.names == ("x",) and len(program.text) < 2000
    near(program(x), ReferenceEvaluator(model).run(None, {"x": x})[0])


def test_unsigned_results(tmp_path):
    """Modules have integers without signs."""
    type, path = onnx.TensorProto.UINT8, tmp_path / "model.mlir"
    model = make_model([helper.make_node("Add", ["x", "x"], ["y"])], [("x", type, (3,))], [("y", type, (3,))])
    x = np.array([3, 70, 120], np.uint8)
    for program in (fovea.import_onnx(model, path=path), fovea.load(path)):
        assert program(x).dtype == np.uint8 and program(x).tolist() == [6, 140, 240]


# ----------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    w = RNG.standard_normal((20, 20), np.float32)
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, [("x", FLOAT, ("rows", 20))], [("y", FLOAT, ("rows", 20))], [("w", w)]), path)
    return path


@pytest.mark.parametrize(
    "type, options",
    [("TopK", {"axis": 1}), ("ScatterND", {}), ("ScatterElements", {"axis": 1}), ("CumSum", {}), ("CumSum", {"exclusive": 1}),
     ("CumSum", {"exclusive": 1, "reverse": 1})],
)  # fmt: skip
def test_what_torch_mlir_writes_in_its_own_dialect(type, options):
    """Of unknown extents, and of indices that count from the end."""
    given = {
        "TopK": (np.array([3]),),
        "CumSum": (np.array(1),),
        "ScatterND": (np.array([[2], [-3]]), np.full((2, 6), 4, np.float32)),
        "ScatterElements": (np.array([[2, -1], [0, 1]]), np.full((2, 2), 4, np.float32)),
    }[type]
    names = [f"input{number}" for number in range(len(given))]
    results = [("y", FLOAT, ("some", "others")), ("places", INT64, ("some", "others"))][: 2 if type == "TopK" else 1]
    node = helper.make_node(type, ["x", *names], [name for name, *_ in results], **options)
    model = make_model([node], [("x", FLOAT, ("rows", 6))], results, zip(names, given))
    x = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)
    for mine, theirs in zip(run(fovea.import_onnx(model), {"x": x}), ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        near(mine, theirs)


def test_truncated(small):
    """Wherever a file ends, there is one error, and it names the file."""
    whole = small.read_bytes()
    for size in range(0, len(whole), 97):
        small.write_bytes(whole[:size])
        with pytest.raises((ValueError, fovea.FoveaError)) as found:
            fovea.import_onnx(small)
        assert str(small) in str(found.value) and "\n" not in str(found.value)


def test_hostile(small):
    """Bytes that are changed are an error or another model, and no crash."""
    whole = small.read_bytes()
    for seed in range(40):
        bytes = np.frombuffer(whole, np.uint8).copy()
        generator = np.random.default_rng(seed)
        # Not the weights, whose bytes are any.
        places = np.concatenate([np.arange(60), np.arange(len(bytes) - 60, len(bytes))])
        bytes[generator.choice(places, 3)] = generator.integers(0, 256, 3)
        small.write_bytes(bytes.tobytes())
        try:
            fovea.import_onnx(small)
        except (ValueError, fovea.FoveaError) as error:
            assert str(small) in str(error)


@pytest.mark.parametrize("version", [18, 20])
def test_the_name_of_the_domain(version):
    """Operations are of ONNX by no domain, or by its name, in branches as well."""
    result = helper.make_tensor_value_info("t", FLOAT, (2,))
    then, otherwise = (
        helper.make_graph([helper.make_node(name, ["x"], ["t"], domain="ai.onnx")], name, [], [result])
        for name in ("Neg", "Abs")
    )
    node = helper.make_node("If", ["is"], ["y"], domain="ai.onnx", then_branch=then, else_branch=otherwise)
    model = make_model([node], [("x", FLOAT, (2,)), ("is", BOOL, ())], [("y", FLOAT, (2,))])
    del model.opset_import[:]
    model.opset_import.add(domain="ai.onnx", version=version)
    x = np.float32([1, -2])
    for whether in (True, False):
        near(fovea.import_onnx(model)(x, np.array(whether)), -x if whether else np.abs(x))


def test_outputs_without_shapes():
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, ("n", 3))], [("y", FLOAT, None)])
    near(fovea.import_onnx(model)(np.float32([[1, -2, 3]])), np.float32([[1, 0, 3]]))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].ClearField("type")
    near(fovea.import_onnx(model)(np.float32([[1, -2, 3]])), np.float32([[1, 0, 3]]))
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = make_model([node], [("x", FLOAT, (4,)), ("s", INT64, ("rank",))], [("y", FLOAT, None)])
    with pytest.raises(ValueError, match="output y has no shape, and none follows from what it is computed of"):
        fovea.import_onnx(model)
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, None)], [("y", FLOAT, None)])
    with pytest.raises(ValueError, match="input x has no shape, needed one"):
        fovea.import_onnx(model)


@pytest.mark.parametrize(
    "node, message",
    [
        (helper.make_node("Nothing", ["x"], ["y"]), "not valid: .*Nothing"),
        (helper.make_node("Add", ["x", "z"], ["y"]), "not valid: .*z"),
        (helper.make_node("Add", ["x"], ["y"]), "not valid: .*Add"),
        (helper.make_node("StringNormalizer", ["x"], ["y"]), "StringNormalizer"),
        (helper.make_node("Unique", ["x"], ["y"]), "torch-mlir has no linalg for"),
        (helper.make_node("Relu", ["x"], ["y"], domain="ours"), "found Relu of domain 'ours', needed an operation of ONNX or a function"),
    ],
)
def test_invalid(node, message):
    model = make_model([node], [("x", FLOAT, (2, 2, 2))], [("y", FLOAT, ("some",))])
    with pytest.raises((ValueError, fovea.FoveaError), match=f"^model: .*{message}") as found:
        fovea.import_onnx(model)
    assert "\n" not in str(found.value)


def test_arguments(small, tmp_path, capsys):
    for extents, message in (
        ({"columns": 2}, "extents: found 'columns', needed names of .*model.onnx: rows"),
        ({"rows": 0}, "extents: found 0 for 'rows', needed an integer of 1 at least"),
    ):
        with pytest.raises(ValueError, match=message):
            fovea.import_onnx(small, extents=extents)
    with pytest.raises(ValueError, match="entry: found 'other', needed none"):
        fovea.load(small, entry="other")
    with pytest.raises(ValueError, match="none.onnx: found no file"):
        fovea.load(tmp_path / "none.onnx")
    out = ["-o", str(tmp_path / "model.mlir")]
    nowhere = str(tmp_path / "none" / "model.mlir")
    with pytest.raises(ValueError, match=f"path: found '{nowhere}', needed a file in a folder that exists"):
        fovea.import_onnx(small, path=nowhere)
    for arguments, message in (
        ([str(small), "-o", nowhere], f"--output: found '{nowhere}', needed a file in a folder that exists"),
        ([str(small), *out, "--extent=rows"], "--extent: found 'rows', needed a name and a number"),
        ([str(small), *out, "--dynamic=0"], "--dynamic: found a module"),
        (["model.py:make", *out, "--extent=rows=2"], "--extent: found none with a name, needed FILE.onnx"),
    ):
        assert _import_tool.main(arguments) == 1
        assert message in capsys.readouterr().err


def test_missing_package(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match="pip install onnx torch-mlir"):
        fovea.import_onnx(small)
