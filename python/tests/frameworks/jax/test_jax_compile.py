# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole functions of JAX, compiled by Fovea instead of XLA."""

import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fovea
import fovea.jax
from fovea import _import_tool
from fovea._stablehlo import to_linalg

HAS_TOOL = Path(sys.executable).with_name("torch-mlir-opt").exists() or shutil.which("torch-mlir-opt") is not None
needs_tool = pytest.mark.skipif(not HAS_TOOL, reason="torch-mlir-opt legalises StableHLO: pip install torch-mlir")

def normal(number, shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(number), shape, dtype)


def near(found, expected, bound=1e-5):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype and isinstance(mine, jax.Array)
        mine, theirs = np.asarray(mine, np.float64), np.asarray(theirs, np.float64)
        assert np.abs(mine - theirs).max() <= bound * max(1, np.abs(theirs).max())


def find_attention(text):
    """What becomes of the module's attention."""
    passes = ["--inline", "--canonicalize", "--cse", "--canonicalize", "--attn-raise", "--canonicalize"]
    command = "import sys; from fovea._fovea import run_tool; sys.exit(run_tool('fovea-opt', sys.argv[1:]))"
    found = subprocess.run([sys.executable, "-c", command, "-", *passes], input=text, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if "attn.dense" in line]


def block(parameters, x):
    B, N, C = x.shape
    q, k, v = ((x @ parameters[name]).reshape(B, N, -1, 8) for name in "qkv")
    out = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(B, N, -1)
    return {"out": x + jax.nn.gelu(out @ parameters["out"]), "mean": x.mean()}


def parameters():
    shapes = {"q": (32, 32), "k": (32, 16), "v": (32, 16), "out": (32, 32)}
    return {name: normal(number, shape) * 0.2 for number, (name, shape) in enumerate(shapes.items())}


@needs_tool
def test_blocks():
    fast = fovea.jax.compile(block)
    for shape in (1, 1, 32), (2, 13, 32), (3, 17, 32):
        x = normal(7, shape)
        near(fast(parameters(), x), block(parameters(), x))


@needs_tool
def test_attention_is_raised():
    program = fovea.import_jax(block, parameters(), normal(7, (2, 13, 32)))
    (dense,) = find_attention(program.text)
    assert "#attn.mask<causal>" in dense and "tensor<2x2x13x8xf32>" in dense
    assert program.names == ("input_0_k", "input_0_out", "input_0_q", "input_0_v", "input_1")


@needs_tool
def test_lengths():
    def attend(q, lengths):
        return jax.nn.dot_product_attention(q, q, q, key_value_seq_lengths=lengths)

    q, lengths = normal(0, (3, 9, 4, 8)), jnp.array([1, 5, 9], jnp.int32)
    near(fovea.jax.compile(attend)(q, lengths), attend(q, lengths))
    (dense,) = find_attention(fovea.import_jax(attend, q, lengths).text)
    assert " lengths(" in dense


@needs_tool
def test_constants_are_shared():
    weights = normal(1, (300, 300))

    def apply(x):
        return x @ weights

    x = normal(2, (5, 300))
    program = fovea.import_jax(apply, x)
    assert len(program.text) < 10_000
    (constant,) = program.constants.values()
    assert np.shares_memory(constant, np.asarray(weights))
    assert np.allclose(program(np.asarray(x)), x @ weights, atol=1e-3)


@needs_tool
def test_other_types_and_scalars():
    def apply(x, factor, *, unused=None):
        return (x * factor).sum(axis=1), x > 2, -x

    fast = fovea.jax.compile(apply)
    x = jnp.arange(12, dtype=jnp.int32).reshape(3, 4)
    near(fast(x, 3), apply(x, 3))
    x = normal(0, (3, 4), jnp.bfloat16)
    near(fast(x, jnp.bfloat16(0.5)), apply(x, jnp.bfloat16(0.5)), 2e-2)


@needs_tool
def test_refused():
    fast = fovea.jax.compile(lambda x: x + 1)
    with pytest.raises(ValueError, match="outside of jax.jit"):
        jax.jit(fast)(jnp.ones(3))
    with pytest.raises(fovea.FoveaError, match=r"no linalg for chlo\."):
        fovea.import_jax(lambda x: jax.scipy.special.polygamma(1, x), jnp.ones(4))


def symbolic(*shapes, type=jnp.float32):
    """Arrays of any batch and length."""
    extents = dict(zip("BN", jax.export.symbolic_shape("b, n")))
    return [jax.ShapeDtypeStruct([extents.get(each, each) for each in shape], type) for shape in shapes]


def language_model(parameters, ids):
    x = parameters["tokens"][ids] + parameters["positions"][jnp.arange(ids.shape[1])]
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return block(parameters, x)["out"] @ parameters["tokens"].T


@needs_tool
def test_any_batch_and_length():
    """One program, with causal attention of grouped heads raised."""
    given = {**parameters(), "tokens": normal(8, (50, 32)), "positions": normal(9, (64, 32))}
    program = fovea.import_jax(language_model, given, *symbolic("BN", type=jnp.int32))
    for shape in (1, 1), (2, 13), (3, 37):
        ids = jax.random.randint(jax.random.key(7), shape, 0, 50)
        near(jnp.asarray(program(*map(np.asarray, jax.tree.leaves((given, ids))))), language_model(given, ids))
    (raised,) = find_attention(program.text)
    assert "#attn.mask<causal>" in raised and "tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>" in raised


@needs_tool
def test_inputs_of_the_same_extents():
    """Of several inputs JAX has it checked, and attention is raised."""

    def attend(q, k, v, lengths):
        return jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)

    shapes = "BN48", "BN28", "BN28"
    examples = [each for each in symbolic(*(tuple(int(x) if x.isdigit() else x for x in shape) for shape in shapes))]
    B = examples[0].shape[0]
    program = fovea.import_jax(attend, *examples, jax.ShapeDtypeStruct((B,), jnp.int32))
    for B, N in (2, 17), (1, 5):
        inputs = normal(0, (B, N, 4, 8)), normal(1, (B, N, 2, 8)), normal(2, (B, N, 2, 8)), jnp.full((B,), 3)
        near(jnp.asarray(program(*map(np.asarray, inputs))), attend(*inputs))
    assert len(find_attention(program.text)) == 1
    inputs = [np.asarray(each) for each in inputs]
    with pytest.raises(fovea.FoveaError, match=r"Found inconsistency between dimension size args\[1\].shape\[1\]"):
        program(inputs[0], np.zeros((1, 6, 2, 8), np.float32), *inputs[2:])


@needs_tool
def test_operations_on_extents(tmp_path):
    def several(x):
        B, N, C = x.shape
        left, right = jnp.split(x, 2, -1)
        turned = jnp.concatenate([-right, left], -1) * jnp.cos(jnp.arange(N)[:, None] / (N + 1))
        return turned, x.reshape(B, -1), x.reshape(-1, 2, C // 2), x.mean(1), x.sum() / (B * N), jnp.concatenate([x, x], 1)

    (example,) = symbolic(("B", "N", 6))
    source = tmp_path / "source.mlir"
    source.write_text(jax.export.export(jax.jit(several), platforms=("cpu",))(example).mlir_module())
    output = tmp_path / "model.mlir"
    assert _import_tool.main([str(source), "-o", str(output)]) == 0
    program = fovea.load(output)
    for shape in (1, 1, 6), (3, 2, 6), (2, 7, 6):
        x = normal(0, shape)
        near([jnp.asarray(each) for each in program(np.asarray(x))], list(several(x)))


@needs_tool
def test_extents_that_are_not_known(tmp_path):
    """What is left is named."""
    with pytest.raises(fovea.FoveaError, match=r"found extents that are not known, in stablehlo\.dynamic_reduce_window"):
        fovea.import_jax(lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, x.shape[1]), (1, 1), "VALID"), *symbolic("BN"))


@needs_tool
def test_other_producers():
    """Nothing says that a dimension is not repeated: it is checked."""
    text = """func.func @main(%x: tensor<?xf32>, %s: tensor<2xi64>) -> tensor<?x?xf32> {
      %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }"""
    kernel = fovea.compile(to_linalg(text=text))
    x = np.arange(3, dtype=np.float32)
    assert np.array_equal(kernel(x, np.array([2, 3])), np.broadcast_to(x, (2, 3)))
    with pytest.raises(fovea.FoveaError, match="extents differ, and none is known to be 1"):
        kernel(x[:1], np.array([2, 3]))


def test_arguments():
    with pytest.raises(ValueError, match="function: found int, needed a function of JAX"):
        fovea.jax.compile(3)
    with pytest.raises(ValueError, match="function: found int, needed a function of JAX"):
        fovea.import_jax(3)


def test_tool_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ValueError, match="pip install torch-mlir"):
        fovea.jax.compile(lambda x: x + 1)(jnp.ones(3))


@needs_tool
def test_arguments_by_name():
    def model(parameters, x, *, shift=None, scale=2.0):
        return jnp.tanh(x @ parameters["w"]) * scale + (0 if shift is None else shift["by"])

    fast = fovea.jax.compile(model)
    parameters, x, shift = {"w": normal(0, (4, 5))}, normal(1, (3, 4)), {"by": normal(2, (5,))}
    for given in {}, {"shift": shift}, {"scale": jnp.float32(3)}, {"shift": shift, "scale": 0.5}:
        near(fast(parameters, x, **given), model(parameters, x, **given))
    near(fast(x=x, parameters=parameters), model(parameters, x))
    # The same tree by places is another call.
    either = fovea.jax.compile(lambda first, second=None, *, x=None: first if x is None else first[0] + x)
    near(either((x,), {"x": x}), (x,))
    near(either((x,), x=x), 2 * x)


@needs_tool
def test_operations_without_a_program_take_arguments_by_name():
    def whiten(x, *, shift):
        return jax.nn.gelu(jnp.linalg.qr(jax.nn.softmax(x @ x.T) @ x)[0]) + shift

    x = normal(0, (8, 4))
    near(fovea.jax.compile(whiten)(x, shift=x), whiten(x, shift=x), 1e-4)
    (fallback,) = fovea.jax.explain_fallbacks(clear=True)
    assert fallback.caller == "fovea.jax.compile(whiten)"


@needs_tool
def test_what_is_no_array_is_named():
    x = normal(0, (3,))
    for wrong in ("text", object()):
        found = f"^found {type(wrong).__name__} among arguments and results, needed arrays"
        with pytest.raises(ValueError, match=found):
            fovea.jax.compile(lambda x: x)([x, wrong])
        with pytest.raises(ValueError, match=found):
            fovea.jax.compile(lambda x, wrong=wrong: (x, wrong))(x)
        with pytest.raises(ValueError, match=found):
            fovea.import_jax(lambda x: x, [x, wrong])
