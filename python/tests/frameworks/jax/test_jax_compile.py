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
    with pytest.raises(fovea.FoveaError, match=r"no linalg for stablehlo\."):
        fovea.jax.compile(lambda x: jnp.fft.fft(x).real)(jnp.ones(4))


@needs_tool
def test_extents_that_are_not_known(tmp_path):
    (N,) = jax.export.symbolic_shape("n")
    example = jax.ShapeDtypeStruct((N, 4), jnp.float32)
    with pytest.raises(ValueError, match="input_0: found extent n, which is not known: needed a program for each shape"):
        fovea.import_jax(jax.nn.softmax, example)
    source = tmp_path / "source.mlir"
    source.write_text(jax.export.export(jax.jit(jax.nn.softmax), platforms=("cpu",))(example).mlir_module())
    with pytest.raises(fovea.FoveaError, match=r"found extents that are not known, in stablehlo\.\w+"):
        to_linalg(str(source))


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
