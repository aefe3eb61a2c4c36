# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models by torch-mlir: imported, raised, compiled, and what they compute."""

import math

import numpy as np
import pytest
import torch
import transformers
from imported import count_raised, find_raised, run_tool
from small_models import make, make_inputs

import fovea
from fovea._import_tool import main

pytest.importorskip("torch_mlir")

BOUND = 1e-5

# How many attentions are raised, and how many of them have causal masks.
ATTENTIONS = {
    "bert": (2, 0), "gpt2": (2, 2), "llama": (2, 2), "mistral": (2, 2), "qwen3": (2, 2), "t5": (6, 2), "gpt_oss": (2, 2),
    "deepseek_v3": (2, 2),
}  # fmt: skip


def example(name):
    model = make(name)
    inputs, _ = make_inputs(name)
    inputs.pop("attention_mask")
    return model, inputs, {} if name == "bert" else {"use_cache": False}


def near(found, expected):
    found = found[0] if isinstance(found, tuple) else found
    expected = expected.logits.detach().numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.abs(found - expected).max() <= BOUND * np.abs(expected).max()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_models(name, tmp_path):
    model, inputs, options = example(name)
    path = tmp_path / "model.mlir"
    program = fovea.import_torch(model, **inputs, **options, path=path)
    assert set(program.names) == set(inputs)
    near(program(**inputs), model(**inputs))
    # Other inputs than the examples.
    other = {name: (each + 5) % 90 + 3 for name, each in inputs.items()}
    near(program(**other), model(**other))
    near(fovea.load(path)(**other), model(**other))
    raised = find_raised(program.text, tmp_path)
    assert (len(raised), sum("#attn.mask<causal" in each for each in raised)) == ATTENTIONS[name]
    # Masks of positions are no array; T5 has a bias for each pair.
    assert name == "t5" or not any("bias(" in each for each in raised)
    assert name != "gpt_oss" or all("sink(" in each for each in raised)
    # Weights are no part of the text, and those of the model.
    assert len(program.text) < 200_000
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)
    near(program(**inputs), model(**inputs))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_padding(name, attention, tmp_path):
    """Masks of tokens are biases of keys alone, beside causal masks."""
    model, inputs, options = example(name)
    model.set_attn_implementation(attention)
    mask = torch.ones(2, 13, dtype=torch.long)
    program = fovea.import_torch(model, **inputs, attention_mask=mask, **options)
    for each in find_raised(program.text, tmp_path):
        assert "bias(" in each and "tensor<2x1x1x13xf32>" in each
        assert ("#attn.mask<causal" in each) == (name != "bert")
    mask[1, 9:] = 0
    found = program(**inputs, attention_mask=mask)
    found = found[0] if isinstance(found, tuple) else found
    with torch.no_grad():
        expected = model(**inputs, attention_mask=mask, **options).logits.numpy()
    present = mask.bool().numpy()
    assert np.abs(found - expected)[present].max() <= BOUND * np.abs(expected).max()


@pytest.mark.parametrize("tokens", [1, 13, 256])
@pytest.mark.parametrize("name", ["gpt_oss", "deepseek_v3"])
def test_experts(name, tokens):
    """Of few tokens the weights of their experts are gathered, and rows of many go to blocks; the model is as it was."""
    model, _, options = example(name)
    forwards = [vars(module).get("forward") for module in model.modules()]
    ids = torch.randint(3, 90, (1, tokens))
    program = fovea.import_torch(model, ids, **options)
    near(program(ids), model(ids, **options))
    # All tokens are sent to the same experts.
    same = torch.full_like(ids, 7)
    near(program(same), model(same, **options))
    assert forwards == [vars(module).get("forward") for module in model.modules()]


class Chosen(torch.nn.Module):
    def __init__(self, transposed):
        super().__init__()
        self.transposed = transposed

    def forward(self, x, weights, index):
        chosen = weights[index]
        return torch.bmm(x, chosen.transpose(1, 2) if self.transposed else chosen)


@pytest.mark.parametrize("rows", [1, 21])
@pytest.mark.parametrize("transposed", [False, True])
def test_chosen_weights(transposed, rows, tmp_path):
    """Factors that are chosen are read where they are: none is copied."""
    x, weights = torch.randn(6, rows, 37), torch.randn(3, *((19, 37) if transposed else (37, 19)))
    index = torch.tensor([2, 0, 0, -1, 1, -3])
    module = Chosen(transposed)
    path = tmp_path / "model.mlir"
    program = fovea.import_torch(module, x, weights, index, path=path)
    expected = module(x, weights, index).numpy()
    for threads in (1, 2):
        fovea.set_num_threads(threads)
        assert np.abs(program(x, weights, index) - expected).max() <= BOUND * np.abs(expected).max()
    fovea.set_num_threads(0)
    prepared = run_tool("fovea-opt", path, "--attn-prepare-products", "--canonicalize")
    assert f"6x{19 if transposed else 37}x" not in prepared


class TopK(torch.nn.Module):
    def __init__(self, *options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return torch.topk(x, *self.options)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("k, dim", [(1, -1), (3, 1), (7, -1), (2, 0)])
def test_topk(k, dim, dtype, largest):
    # No two are equal, but for infinities, of which the first counts.
    x = torch.randperm(28).reshape(4, 7).to(dtype) - 14
    program = fovea.import_torch(TopK(k, dim, largest), x)
    for found, expected in zip(program(x), torch.topk(x, k, dim, largest)):
        assert np.array_equal(found, expected.numpy())
    if dtype == torch.float32:
        x[1] = float("-inf") if largest else float("inf")
        values, indices = program(x)
        assert np.array_equal(values, torch.topk(x, k, dim, largest).values.numpy())
        assert np.array_equal(np.take_along_axis(x.numpy(), indices, dim), values)
        assert all(len(set(row)) == k for row in np.moveaxis(indices, dim, -1).reshape(-1, k))


def test_topk_with_nan():
    x = torch.tensor([[1.0, float("nan"), 5.0, float("nan")]])
    values, indices = fovea.import_torch(TopK(3), x)(x)
    assert np.array_equal(np.isnan(values), [[True, True, False]]) and np.array_equal(indices, [[1, 3, 2]])


class Scatter(torch.nn.Module):
    def forward(self, x, index):
        return x.scatter(1, index, 7.0), x.scatter(0, index, -1.0)


def test_scatter():
    x, index = torch.randn(3, 3), torch.tensor([[2, 0, 0], [1, 1, 1], [0, 2, 1]])
    for found, expected in zip(fovea.import_torch(Scatter(), x, index)(x, index), Scatter()(x, index)):
        assert np.array_equal(found, expected.numpy())


def test_shapes_are_checked():
    model, inputs, options = example("llama")
    program = fovea.import_torch(model, **inputs, **options)
    with pytest.raises(ValueError, match="2x13xi64"):
        program(inputs["input_ids"][:, 1:])
    with pytest.raises(ValueError, match="inputs: found 0 arrays, needed 1: input_ids"):
        program()


def test_bfloat16(tmp_path):
    torch.manual_seed(0)
    model, path = torch.nn.Linear(8, 8).to(torch.bfloat16), tmp_path / "model.mlir"
    x = torch.randn(3, 8).to(torch.bfloat16)
    expected = model(x).float().detach().numpy()
    for program in (fovea.import_torch(model, x, path=path), fovea.load(path)):
        assert np.abs(program(x).astype(np.float32) - expected).max() <= 2e-2 * np.abs(expected).max()


def test_what_torch_mlir_does_not_import():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    with pytest.raises(fovea.FoveaError, match="torch-mlir does not import Model: "):
        fovea.import_torch(Model(), torch.randn(4, 4))
    with pytest.raises(ValueError, match="model: found function, needed a torch.nn.Module"):
        fovea.import_torch(lambda x: x, torch.randn(4))


def test_what_is_not_traced():
    """The error has the line of the model."""

    class Untraced(torch.nn.Module):
        def forward(self, x, mask=None):
            return x + (torch.ones_like(x) if not torch.compiler.is_compiling() else mask).shape[0]

    class Split(torch.nn.Module):
        def forward(self, x, sizes):
            return torch.cat([each.cumsum(0) for each in x.split(sizes.tolist())]) + x

    x = torch.randn(4, 4)
    place = r" at .*test_imported_models.py:\d+"
    with pytest.raises(fovea.FoveaError, match="Untraced: torch.export does not trace it: AttributeError: .*," + place):
        fovea.import_torch(Untraced(), x)
    with pytest.raises(fovea.FoveaError, match=f"Split: extents of .*{place} are numbers of tensors"):
        fovea.import_torch(Split(), x, torch.tensor([1, 1, 2]))


def test_views_of_attention_that_is_reshaped():
    """As AFMoE has them: the layout is that of where the model was traced."""

    class Views(torch.nn.Module):
        def forward(self, q, k):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, k).reshape(2, -1, 5, 4)
            return out.transpose(1, 2).view(2, 5, -1)

    q, k = (torch.randn(2, 5, 3, 4).transpose(1, 2) for _ in range(2))
    found = fovea.import_torch(Views(), q, k)(q, k)
    assert np.abs(found - Views()(q, k).numpy()).max() <= 1e-6


def test_path_is_checked(tmp_path):
    with pytest.raises(ValueError, match="path: found .*model.txt.*, needed one that ends in .mlir"):
        fovea.import_torch(torch.nn.Linear(2, 2), torch.randn(1, 2), path=tmp_path / "model.txt")
    assert not [*tmp_path.iterdir()]


class CumulativeSum(torch.nn.Module):
    def forward(self, x):
        return tuple(torch.cumsum(x, dim) for dim in range(x.dim()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool", "bfloat16"])
def test_cumulative_sums(dtype):
    for shape in (1,), (7, 2), (2, 16, 33):
        x = (torch.randn(shape) * 3).to(getattr(torch, dtype))
        program = fovea.import_torch(CumulativeSum(), x)
        results = program(x)
        for found, expected in zip(results if isinstance(results, tuple) else (results,), CumulativeSum()(x)):
            assert found.shape == expected.shape
            found, expected = found.astype(np.float64), expected.double().numpy()
            bound = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 2e-2}.get(dtype, 0)
            assert np.abs(found - expected).max() <= bound * np.abs(expected).max()
    # What comes after a NaN is one, and nothing before.
    x = torch.ones(5)
    x[3] = float("nan")
    program = fovea.import_torch(CumulativeSum(), x)
    assert np.array_equal(np.isnan(program(x)), [False, False, False, True, True])


def test_command(tmp_path):
    script, output = tmp_path / "script.py", tmp_path / "model.mlir"
    script.write_text(
        "import torch\n\ndef make():\n    torch.manual_seed(0)\n    return torch.nn.Linear(3, 2), (torch.ones(4, 3),)\n"
    )
    assert main([f"{script}:make", "-o", str(output)]) == 0
    torch.manual_seed(0)
    expected = torch.nn.Linear(3, 2)(torch.ones(4, 3)).detach().numpy()
    assert np.allclose(fovea.load(output)(np.ones((4, 3), np.float32)), expected, atol=1e-6)


def test_command_with_stablehlo(tmp_path):
    jax = pytest.importorskip("jax")
    source, output = tmp_path / "source.mlir", tmp_path / "model.mlir"
    q = jax.random.normal(jax.random.key(0), (2, 9, 4, 8))

    def attend(q):
        return jax.nn.dot_product_attention(q, q, q, is_causal=True)

    source.write_text(jax.export.export(jax.jit(attend))(q).mlir_module())
    assert main([str(source), "-o", str(output)]) == 0
    program = fovea.load(output)
    assert np.allclose(program(np.asarray(q)), attend(q), atol=1e-5)
    assert count_raised(program.text, tmp_path) == 1


def test_command_with_unsigned_results(tmp_path):
    """StableHLO says of results that they have no sign, what becomes of it does not."""
    jax = pytest.importorskip("jax")
    source, output, beside = (tmp_path / name for name in ("source.mlir", "model.mlir", "model.safetensors"))
    x = np.array([1, 100, 200], np.uint8)

    def write(function):
        source.write_text(jax.export.export(jax.jit(function))(x).mlir_module())
        assert main([str(source), "-o", str(output)]) == 0
        return fovea.load(output)(x)

    found = write(lambda x: (x + np.uint8(55), x.astype(np.float32), x.sum(dtype=np.uint32)))
    assert [each.dtype for each in found] == [np.uint8, np.float32, np.uint32]
    assert [each.tolist() for each in found] == [[56, 155, 255], [1, 100, 200], 301]
    assert write(lambda x: x ^ np.uint8(255)).tolist() == [254, 155, 55] and beside.exists()
    # Of what is there of another module nothing is left.
    assert write(lambda x: x.astype(np.int32)).tolist() == [1, 100, 200] and not beside.exists()
    # One list of types is for one function: those of several are signed.
    body = "%0 = stablehlo.add %x, %x : tensor<3xui8> return %0 : tensor<3xui8>"
    one = "func.func public @{0}(%x: tensor<3xui8>) -> tensor<3xui8> {{ " + body + " }}"
    source.write_text("module {" + one.format("f") + one.format("g") + "}")
    assert main([str(source), "-o", str(output)]) == 0 and not beside.exists()
    assert fovea.load(output, entry="g")(x).tolist() == [2, -56, -112]


class Attend(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v, mask=None):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


@pytest.mark.parametrize("mask, options", [(None, {}), (None, {"is_causal": True}), ((2, 1, 9, 9), {"scale": 0.7}), ((2, 3, 9, 9), {})])
def test_one_operation(mask, options, tmp_path):
    """What torch-mlir makes of attention that it does not take apart, in the generic form."""
    from torch_mlir import fx

    shapes = [(2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 5), *([mask] if mask else [])]
    tensors = [torch.randn(shape) for shape in shapes]
    legal = ["aten.scaled_dot_product_attention"]
    module = fx.export_and_import(
        Attend(**options), *tensors, output_type="linalg-on-tensors", decomposition_table=[], backend_legal_ops=legal
    )
    path = tmp_path / "model.mlir"
    path.write_text(module.operation.get_asm(print_generic_op_form=True))
    assert '"tm_tensor.attention"' in path.read_text()
    text = run_tool("fovea-opt", "--allow-unregistered-dialect", path, "--attn-raise", "--canonicalize")
    assert text.count("attn.dense") == 1 and ("attn.mask<causal>" in text) == bool(options.get("is_causal"))
    expected = Attend(**options)(*tensors).numpy()
    for target in "cpu", "reference":
        found = fovea.compile(text, target=target)(*tensors)
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("element", [None, "i1", "f32"])
def test_one_operation_by_maps(element, tmp_path):
    """IREE's, with heads that share keys, values that are transposed, and a mask of keys."""
    loops = "affine_map<(b, g, h, m, d, n, e) -> ({})>"
    maps = [loops.format(each) for each in ("b, g, h, m, d", "b, n, g, d", "b, g, e, n", "", "b, n", "b, m, g, h, e")]
    types = ["tensor<2x3x2x5x8xf32>", "tensor<2x7x3x8xf32>", "tensor<2x3x4x7xf32>", f"tensor<2x7x{element}>"]
    names, result = ["%q", "%k", "%v", "%mask"], "tensor<2x5x3x2x4xf32>"
    if element is None:
        del maps[4], types[3], names[3]
    masks, mask_types = names[3:], types[3:]
    text = f"""
      func.func @main({", ".join(f"{name}: {type}" for name, type in zip(names, types))}) -> {result} {{
        %scale = arith.constant 0.25 : f32
        %0 = tensor.empty() : {result}
        %1 = "iree_linalg_ext.attention"({", ".join(["%q, %k, %v, %scale", *masks, "%0"])}) <{{indexing_maps = [{", ".join(maps)}]}}> ({{
        ^bb0(%score: f32):
          "iree_linalg_ext.yield"(%score) : (f32) -> ()
        }}) : ({", ".join([*types[:3], "f32", *mask_types, result])}) -> {result}
        return %1 : {result}
      }}"""
    q, k, v = torch.randn(2, 3, 2, 5, 8), torch.randn(2, 7, 3, 8), torch.randn(2, 3, 4, 7)
    scores = torch.einsum("bghmd,bngd->bghmn", q, k) * 0.25
    arrays = [q, k, v]
    if element == "i1":
        # Some key is there for all rows.
        arrays.append((torch.rand(2, 7) < 0.6) | (torch.arange(7) == 2))
        scores = scores.masked_fill(~arrays[3][:, None, None, None], float("-inf"))
    elif element == "f32":
        arrays.append(torch.randn(2, 7))
        scores = scores + arrays[3][:, None, None, None]
    expected = torch.einsum("bghmn,bgen->bmghe", scores.softmax(-1), v).numpy()
    path = tmp_path / "model.mlir"
    path.write_text(text)
    raised = run_tool("fovea-opt", "--allow-unregistered-dialect", path, "--attn-raise", "--canonicalize")
    assert raised.count("attn.dense") == 1
    found = fovea.compile(raised)(*arrays)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_depthwise_convolutions():
    """MobileNetV2 with random weights: its digits in f64, and those of PyTorch in f32, whose errors grow with each layer."""
    torch.manual_seed(3)
    config = transformers.MobileNetV2Config(image_size=64, depth_multiplier=0.5)
    model, x = transformers.MobileNetV2Model(config).eval(), torch.randn(2, 3, 64, 64)
    for each in model.parameters():
        if each.dim() == 4:
            torch.nn.init.normal_(each, std=2 / math.sqrt(each[0].numel()))
    for name, each in model.named_buffers():
        if "running" in name:
            each.uniform_(0.5, 2)
    with torch.no_grad():
        eager = model(x).last_hidden_state
        narrow = fovea.import_torch(model, x)(x)[0]
        exact = model.double()(x.double()).last_hidden_state.numpy()
        wide = fovea.import_torch(model, x.double())(x.double())[0]
    size = np.abs(exact).max()
    assert size > 1e-2
    assert np.abs(wide - exact).max() <= 1e-12 * size
    assert np.abs(narrow - exact).max() <= 4 * np.abs(eager.numpy() - exact).max()
