# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds of every function of fovea.jax."""

import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TYPES, compare_with_package, make, make_biases, make_weights
from jax.test_util import check_grads
from jax_cases import LENGTHS, blocks_of_keys, documents, make_mesh, near, qkv, random, sources

import fovea
import fovea.jax
from fovea.math import tanh


class Case(NamedTuple):
    """`arrays` makes the array arguments of a type by name; those of `smooth` have gradients."""

    function: str
    arrays: object
    options: dict
    smooth: tuple


def multipole(type, *families):
    found = qkv(type)
    for seed, family in enumerate(families):
        found[f"{family}_weights"] = make_weights(21, 4, 2, 8, type=type, seed=seed)
        found[f"{family}_biases"] = make_biases(21, 4, 2, 8, type=type, seed=seed + 10)
    return found


def packed(type):
    """Four sequences, one of them with no query and one with more keys than queries."""
    found = {name: random(type, 21, heads, 8, seed=seed) for seed, (name, heads) in enumerate(zip("qkv", (4, 2, 2)))}
    starts = np.array([[0, 7, 7, 12, 21], [0, 7, 9, 17, 21]], np.int32)
    return {**found, "cu_seqlens_q": starts[0], "cu_seqlens_k": starts[1], "sink": random(type, 4, seed=7)}


def quantized(type):
    found = qkv(type)
    return {**found, "codebook": random(type, 2, 11, 8)}


def bases(type):
    q, k, v = make(type, B=2, H=2, N=21, D=8)
    b, sizes, _ = fovea.conv_recover(q, k, **SEARCH)
    return {"b": b.astype(TYPES[type]), "sizes": sizes, "v": v}


def ranks(type, **more):
    found = {name: np.abs(random(type, 2, 2, 13, 4, seed=seed)) for seed, name in enumerate(("u1", "u2"))}
    return {**found, "v": random(type, 2, 2, 13, 8), **more}


def pages(type):
    own = qkv(type)
    table = np.random.default_rng(0).integers(0, 9, (2, 6)).astype(np.int32)
    return {
        "q": own["q"], "k_pages": random(type, 9, 2, 4, 8), "v_pages": random(type, 9, 2, 4, 5), "block_table": table,
        "lengths": np.array([21, 15], np.int32),
    }  # fmt: skip


def tree(type, **more):
    return {"tree": fovea.tree_build(random(type, 2, 16, 8)), **more}


def nodes(type):
    level, index = fovea.tree_select(tree(type)["tree"], {4: 1, 3: 2, 2: 1}, score=random(type, 2, 3, 8))
    return {"level": level, "index": index}


SLOPES = fovea.capture(np.random.default_rng(2).random(4))
TABLE = fovea.capture(np.random.default_rng(3).standard_normal((4, 41)).astype(np.float32))
SEARCH = dict(num_basis=4, window=2, delta=0.5, epsilon=0.01)
MASK = np.random.default_rng(4).random((2, 21)) < 0.7

CASES = {
    "dense": Case("dense", qkv, dict(causal=True, window=9), ("q", "k", "v")),
    "dense-score": Case("dense", qkv, dict(causal=True, score=lambda s, b, h, i, j: 2 * tanh(s / 2) + b * j / 9), ("q", "k", "v")),
    "dense-score-captures": Case(
        "dense",
        lambda type: {**qkv(type), "sink": random(type, 4)},
        dict(score=lambda s, b, h, i, j: s * SLOPES[h] + TABLE[h, j - i + 20]),
        ("q", "k", "v", "sink"),
    ),
    "stream": Case("stream", sources, dict(block=8), ("q", "sources", "sink")),
    "stream-blocks": Case("stream", blocks_of_keys, dict(block=4), ("q",)),
    "stream-documents": Case("stream", documents, dict(score=lambda s, b, h, i, j: 2 * tanh(s / 2) + (j - i) / 9), ("q",)),
    "varlen": Case("varlen", packed, dict(causal=True, return_lse=True), ("q", "k", "v", "sink")),
    "paged": Case("paged", pages, dict(window=9, return_lse=True), ()),
    "varlen-window": Case("varlen", packed, dict(window=4, scale=0.5), ("q", "k", "v", "sink")),
    "fast_multipole": Case(
        "fast_multipole",
        lambda type: multipole(type, "key", "value"),
        dict(group=4, causal=True),
        ("q", "k", "v", "key_weights", "value_weights", "key_biases", "value_biases"),
    ),
    "fast_multipole-lengths": Case(
        "fast_multipole", lambda type: {**multipole(type, "key", "value"), **LENGTHS}, dict(group=4), ("q", "v")
    ),
    "fast_multipole_linear": Case(
        "fast_multipole_linear",
        lambda type: {**multipole(type, "query", "key", "value"), "mask": MASK},
        dict(group=4),
        ("q", "k", "v", "query_weights", "value_biases"),
    ),
    "vq": Case("vq", quantized, dict(block=4), ("q", "v")),
    "vq-bias": Case(
        "vq", lambda type: {**quantized(type), "bias": random(type, 2, 4, 21, 8)}, dict(block=4), ("q", "v", "bias")
    ),
    "vq-memory": Case(
        "vq", lambda type: {**quantized(type), "bias": random(type, 2, 4, 21, 12)}, dict(block=4, memory=2), ("q", "v", "bias")
    ),
    "vq-relative": Case(
        "vq",
        lambda type: {
            **quantized(type),
            "relative": [random(type, 4, 8, 8), random(type, 1, 8)],
            "distance_bias": random(type, 1, 8),
        },
        dict(block=4),
        ("q", "v", "relative", "distance_bias"),
    ),
    "vq-lengths": Case("vq", lambda type: {**quantized(type), **LENGTHS}, dict(block=4), ("q", "v")),
    "vq-squared": Case("vq", quantized, dict(block=4, weighting="squared_relu"), ("q", "v")),
    "quantize": Case("quantize", lambda type: dict(k=random(type, 2, 2, 21, 8), codebook=random(type, 2, 11, 8)), {}, ()),
    "codebook_update": Case(
        "codebook_update",
        lambda type: dict(
            k=random(type, 2, 2, 21, 8),
            codes=np.random.default_rng(0).integers(0, 11, (2, 2, 21)).astype(np.int32),
            sums=random("float64" if type == "float64" else "float32", 2, 11, 8),
            counts=np.abs(random("float64" if type == "float64" else "float32", 2, 11)),
        ),
        dict(rate=0.9),
        (),
    ),
    "commitment_loss": Case(
        "commitment_loss",
        lambda type: dict(k=random(type, 2, 2, 21, 8), k_hat=random(type, 2, 2, 21, 8, seed=6), mask=MASK),
        {},
        ("k",),
    ),
    "conv": Case("conv", qkv, SEARCH, ("v",)),
    "conv-group": Case("conv", qkv, dict(mask=fovea.SlidingGroup(7), return_counts=True, **SEARCH), ("v",)),
    "conv_recover": Case("conv_recover", lambda type: {name: qkv(type)[name] for name in "qk"}, SEARCH, ()),
    "conv_apply": Case("conv_apply", bases, dict(return_recomputed=True), ("b", "v")),
    "low_rank": Case("low_rank", ranks, dict(mask=fovea.Causal()), ("u1", "u2", "v")),
    "low_rank-interval": Case(
        "low_rank",
        lambda type: ranks(type, mask=fovea.RowInterval(np.arange(13) // 2, np.arange(13))),
        {},
        ("u1", "u2", "v"),
    ),
    "low_rank-change": Case(
        "low_rank",
        ranks,
        dict(mask=fovea.RowChange.from_entries(np.random.default_rng(1).random((13, 13)) < 0.5)),
        ("u1", "v"),
    ),
    "low_rank-rows": Case(
        "low_rank",
        lambda type: ranks(
            type, mask=fovea.DistinctRows(np.arange(13) % 3, np.random.default_rng(1).random((3, 13)) < 0.5)
        ),
        {},
        ("u2", "v"),
    ),
    "polynomial_features": Case(
        "polynomial_features", lambda type: dict(x=random(type, 2, 2, 9, 4)), dict(degree=2, scale=0.5), ("x",)
    ),
    "pool": Case(
        "pool",
        lambda type: dict(
            x=random(type, 2, 2, 9, 4), gate=random(type, 2, 2, 9, 4), position_bias=random(type, 4, 4)
        ),
        dict(interval=4, overlap=1),
        ("x", "gate", "position_bias"),
    ),
    "top_k": Case("top_k", lambda type: dict(scores=random(type, 2, 2, 9, 6)), dict(k=3, causal_unit=2), ()),
    "rope": Case(
        "rope", lambda type: dict(x=random(type, 2, 2, 9, 8), positions=np.arange(9, dtype=np.int32)), {}, ("x",)
    ),
    "rope-table": Case(
        "rope",
        lambda type: dict(x=random(type, 2, 2, 9, 8), positions=np.arange(9, dtype=np.int32)),
        dict(frequencies=np.array([1.0, 0.3, 0.1, 0.01]), style="half", magnitude=1.25),
        ("x",),
    ),
    "tree_build": Case("tree_build", lambda type: dict(c=random(type, 2, 16, 8)), {}, ("c",)),
    "tree_build-lengths": Case(
        "tree_build",
        lambda type: dict(c=random(type, 2, 16, 8), lengths=np.array([16, 9], np.int32)),
        dict(levels=2),
        ("c",),
    ),
    "tree_fetch": Case(
        "tree_fetch", lambda type: tree(type, **nodes(type)), dict(return_log_weight=True), ("tree",)
    ),
    "tree_select": Case(
        "tree_select", lambda type: tree(type, score=random(type, 2, 3, 8)), dict(budgets={4: 1, 3: 2, 2: 1}), ()
    ),
    "tree_update": Case(
        "tree_update",
        lambda type: tree(type, **nodes(type), rows=random(type, 2, nodes(type)["level"].shape[1], 8)),
        {},
        ("tree", "rows"),
    ),
    "tree_materialize": Case("tree_materialize", tree, {}, ("tree",)),
    "tree_score": Case(
        "tree_score",
        lambda type: dict(
            query=random(type, 2, 4, 3, 8),
            key=random(type, 2, 2, 7, 8),
            log_weight=random("float64" if type == "float64" else "float32", 2, 7),
        ),
        {},
        ("query", "key", "log_weight"),
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def leaves(found):
    return [np.asarray(each) for each in jax.tree.leaves(found)]


def call(case, arrays):
    return getattr(fovea.jax, case.function)(**arrays, **case.options)


@EVERY
@pytest.mark.parametrize("type", TYPES)
def test_has_the_bits_of_the_function_on_arrays(case, type):
    arrays = case.arrays(type)
    expected = leaves(getattr(fovea, case.function)(**arrays, **case.options))
    with jax.enable_x64(type == "float64"):
        eager = leaves(call(case, arrays))
        compiled = leaves(jax.jit(lambda arrays: call(case, arrays))(arrays))
    for one, other, array in zip(eager, compiled, expected, strict=True):
        assert one.dtype == other.dtype == array.dtype and one.shape == other.shape == array.shape
        np.testing.assert_array_equal(one, array)
        np.testing.assert_array_equal(other, array)


def split(case, arrays):
    smooth = {name: arrays[name] for name in case.smooth}
    return smooth, {name: value for name, value in arrays.items() if name not in smooth}


def floats(found):
    """Finite ones: the logarithm of no token is -inf."""
    return [each for each in jax.tree.leaves(found) if jnp.issubdtype(each.dtype, jnp.floating)]


@EVERY
def test_gradients_against_differences(case):
    if not case.smooth:
        pytest.skip("has no gradient, or none that is that of the function")
    with jax.enable_x64(True):
        smooth, others = split(case, case.arrays("float64"))
        smooth = jax.tree.map(jnp.asarray, smooth)
        check_grads(
            jax.jit(lambda smooth: floats(call(case, {**smooth, **others}))),
            (smooth,), order=1, modes=["rev"], eps=1e-5, atol=1e-6, rtol=1e-6,
        )  # fmt: skip


@EVERY
def test_vmap(case):
    """Of all arrays, of the first one alone, and of all but the first."""
    arrays = case.arrays("float32")
    flat, structure = jax.tree.flatten(arrays)
    flat = [jnp.asarray(each) for each in flat]

    def run(*given):
        return leaves_of(call(case, jax.tree.unflatten(structure, given)))

    def leaves_of(found):
        return tuple(jax.tree.leaves(found))

    numbers = range(len(flat))
    for chosen in (set(numbers), {0}, set(numbers) - {0}):
        if not chosen:
            continue
        scaled = [
            jnp.stack([each, each * 0.5 if each.dtype.kind == "f" or each.dtype.name == "bfloat16" else each, each], 1)
            if number in chosen and each.ndim
            else each
            for number, each in enumerate(flat)
        ]
        axes = [1 if number in chosen and each.ndim else None for number, each in enumerate(flat)]
        found = jax.vmap(run, axes)(*scaled)
        for part in range(3):
            single = run(*(each if axis is None else each[:, part] for each, axis in zip(scaled, axes)))
            for one, other in zip(found, single, strict=True):
                if jnp.issubdtype(other.dtype, jnp.floating):
                    near(jnp.nan_to_num(one[part]), jnp.nan_to_num(other), 1e-6)
                else:
                    np.testing.assert_array_equal(one[part], other)


def test_all_functions_are_there():
    of_programs = {"target", "out", "gradients"}
    reason = "the program says where it runs and XLA where results lie"
    of_lists = {"HCAGradients", "SelectedGradients", "hca_backward", "selected_backward"}
    missing = {"gradients of lists of sources, which jax.grad adds up": of_lists}
    compare_with_package(fovea.jax, missing, {reason: of_programs}, own={"compile"})


# ----------------------------------------------------------------------------
# States and choices
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("memory,has_terms", [(0, False), (1, True), (2, False)])
def test_decode_is_the_whole_call(memory, has_terms):
    arrays, options = quantized("float32"), {"block": 4, "memory": memory}
    if has_terms:
        heads, width = arrays["q"].shape[1], arrays["q"].shape[3]
        relative = random("float32", heads, 8, width), random("float32", heads, width)
        options |= {"relative": relative, "distance_bias": random("float32", heads, 8)}
    whole = fovea.vq(**arrays, **options)
    step = jax.jit(lambda state, q, k, v: fovea.jax.vq_decode(q, k, v, arrays["codebook"], state, **options))
    out, state = fovea.jax.vq(
        *(arrays[name][:, :, :5] for name in "qkv"), arrays["codebook"], **options, return_state=True
    )
    for token in range(5, 21):
        before = state
        out, state = step(state, *(arrays[name][:, :, token : token + 1] for name in "qkv"))
        near(out, whole[:, :, token : token + 1])
        # Arrays of JAX do not change.
        assert int(before.position) == token and int(state.position) == token + 1
    assert isinstance(state, fovea.VQState)


def test_decode_from_nothing_and_in_a_loop():
    arrays = quantized("float32")
    whole = fovea.vq(**arrays, block=4)
    first = [arrays[name][:, :, :1] for name in "qkv"]
    _, state = fovea.jax.vq_decode(*first, arrays["codebook"], block=4)

    def body(state, token):
        out, state = fovea.jax.vq_decode(*token, arrays["codebook"], state, block=4)
        return state, out

    rest = tuple(jnp.moveaxis(arrays[name][:, :, 1:, None], 2, 0) for name in "qkv")
    _, outs = jax.lax.scan(body, state, rest)
    near(jnp.moveaxis(outs[..., 0, :], 0, 2), whole[:, :, 1:])


def test_quantize_passes_gradients_straight_through():
    k, codebook = random("float32", 2, 2, 21, 8), random("float32", 2, 11, 8)

    def loss(k):
        return (fovea.jax.quantize(k, codebook, **LENGTHS)[0] * random("float32", 2, 2, 21, 8, seed=9)).sum()

    expected = random("float32", 2, 2, 21, 8, seed=9)
    expected[1, :, 15:] = 0
    np.testing.assert_array_equal(jax.grad(loss)(jnp.asarray(k)), expected)


def test_no_keys_have_no_commitment_loss():
    k = jnp.ones((2, 3, 0, 4))
    loss, d_k = jax.value_and_grad(lambda each: fovea.jax.commitment_loss(each, k))(k)
    assert loss == 0 and d_k.shape == k.shape


def test_choices_are_constants():
    def loss(c):
        tree = fovea.jax.tree_build(c)
        level, index = fovea.jax.tree_select(tree, {4: 1, 3: 1}, score=c[:, :2])
        return fovea.jax.tree_fetch(tree, level, index).sum()

    assert np.isfinite(jax.jit(jax.grad(loss))(random("float32", 2, 16, 8))).all()


def test_what_has_no_gradient():
    arrays = quantized("float32")
    with pytest.raises(ValueError, match="codebook_update: found a gradient that depends on its results"):
        jax.grad(lambda k: fovea.jax.codebook_update(k, *codebook_arguments(arrays))[0].sum())(jnp.asarray(arrays["k"]))
    with pytest.raises(ValueError, match="state: found one in a vq whose gradient is taken"):
        jax.grad(lambda q: fovea.jax.vq(**{**arrays, "q": q}, block=4, return_state=True)[0].sum())(
            jnp.asarray(arrays["q"])
        )


def codebook_arguments(arrays):
    return np.zeros((2, 2, 21), np.int32), arrays["codebook"], np.ones((2, 11), np.float32)


def test_varlen_is_dense_of_each_sequence():
    arrays = packed("float32")
    out, lse = fovea.jax.varlen(**arrays, causal=True, return_lse=True)
    starts = zip(*(zip(arrays[name][:-1], arrays[name][1:]) for name in ("cu_seqlens_q", "cu_seqlens_k")))
    for (first, last), (begin, end) in starts:
        q, k, v = (
            jnp.swapaxes(arrays[name][rows][None], 1, 2)
            for name, rows in (("q", slice(first, last)), ("k", slice(begin, end)), ("v", slice(begin, end)))
        )
        own, rows = fovea.jax.dense(q, k, v, causal=True, sink=arrays["sink"], return_lse=True)
        near(out[first:last], jnp.swapaxes(own[0], 0, 1))
        near(lse[:, first:last], rows[0])


def test_errors_of_varlen():
    arrays = packed("float32")
    call = jax.jit(lambda starts, **more: fovea.jax.varlen(**{**arrays, "cu_seqlens_q": starts, **more}, causal=True))
    with pytest.raises(ValueError, match="cu_seqlens_k: found sequences 4, needed 3"):
        call(np.array([0, 7, 12, 21], np.int32))
    with pytest.raises(ValueError, match="sink: found shape"):
        call(arrays["cu_seqlens_q"], sink=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="window: found -1"):
        fovea.jax.varlen(**arrays, window=-1)
    for starts, match in (
        ([0, 7, 6, 12, 21], "cu_seqlens_q: found 6 at place 2, needed 7 to 21"),
        ([1, 7, 7, 12, 21], "cu_seqlens_q: found 1 at place 0, needed 0"),
        ([0, 7, 7, 12, 20], "cu_seqlens_q: found 20 at the end, needed 21"),
    ):
        with pytest.raises(Exception, match=match):
            call(np.array(starts, np.int32)).block_until_ready()


def test_numbers_that_jax_computed():
    arrays = [*map(jnp.asarray, make(B=2, H=2, N=17, D=8))]
    near(fovea.jax.dense(*arrays, scale=jnp.float32(0.5)), fovea.jax.dense(*arrays, scale=0.5))


def test_frequencies_that_jax_computed():
    x, places = jnp.asarray(make(B=1, H=2, N=5, D=8)[0]), np.arange(5)
    table = 0.5 ** jnp.arange(4)
    near(fovea.jax.rope(x, places, frequencies=table), fovea.jax.rope(x, places, frequencies=[1.0, 0.5, 0.25, 0.125]))
    with pytest.raises(ValueError, match="^frequencies: found an array that is traced, needed numbers that are known"):
        jax.jit(lambda table: fovea.jax.rope(x, places, frequencies=table))(table)


def test_arrays_of_others():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="q: found Tensor, needed an array of JAX or of NumPy"):
        fovea.jax.dense(*[torch.zeros(1, 1, 4, 8)] * 3)


def test_keys_of_random_numbers_are_no_numbers():
    x = random("float32", 1, 1, 4, 4)
    keys = jax.random.split(jax.random.key(0), (1, 1, 4, 4))
    for given in {"q": jax.random.key(0), "k": x, "v": x}, {"q": x, "k": keys, "v": x}:
        name = "q" if given["k"] is x else "k"
        for call in fovea.jax.dense, jax.jit(fovea.jax.dense):
            with pytest.raises(ValueError, match=f"^{name}: found element type key<fry>, needed an array of numbers"):
                call(**given)


def test_types_of_numpy_that_jax_lacks():
    x = random("float32", 1, 1, 4, 4)
    for kind in (object, "U8", "M8[s]", np.longdouble, "V4"):
        wrong = x.astype(np.int64).astype(kind) if kind == "M8[s]" else x.astype(kind) if kind != "V4" else np.zeros(x.shape, kind)
        with pytest.raises(ValueError, match="^k: found element type "):
            fovea.jax.dense(x, wrong, x)
    swapped = x.astype(x.dtype.newbyteorder())
    assert np.array_equal(fovea.jax.dense(x, swapped, x), fovea.jax.dense(x, x, x))


def test_arguments_that_a_function_does_not_have():
    x = random("float32", 1, 1, 4, 4)
    for arguments, options in ((x,) * 4, {}), ((x, x), {}), ((x, x, x), {"target": "cpu"}), ((x, x, x), {"q": x}):
        with pytest.raises(TypeError, match="^dense: "):
            fovea.jax.dense(*arguments, **options)


@pytest.mark.parametrize("function", ["dense", "vq", "fast_multipole", "quantize"])
def test_no_tracers_are_kept(function):
    case = next(each for each in CASES.values() if each.function == function)
    arrays = case.arrays("float32")

    def loss(arrays):
        results = jax.tree.leaves(getattr(fovea.jax, function)(**arrays, **case.options))
        return sum(each.sum() for each in results if each.dtype == jnp.float32)

    with jax.checking_leaks():
        value = jax.jit(lambda arrays: loss(arrays))(arrays)
        gradient = jax.jit(jax.grad(lambda smooth: loss({**arrays, **smooth})))({name: arrays[name] for name in case.smooth})
    jax.block_until_ready((value, gradient))


def test_errors_of_values():
    """They are found when a program runs."""
    arrays = {**multipole("float32", "key", "value"), "lengths": np.array([22, 3], np.int32)}
    with pytest.raises(Exception, match="lengths: found 22 for batch entry 0, needed 0 to 21"):
        jax.block_until_ready(jax.jit(lambda: fovea.jax.fast_multipole(**arrays, group=4))())
    with pytest.raises(ValueError, match="key_weights"):
        fovea.jax.fast_multipole(**{**arrays, "key_weights": arrays["key_weights"][:1]}, group=4)
    with pytest.raises(ValueError, match="score: found a function, which programs of XLA cannot call"):
        fovea.jax.tree_select(**tree("float32"), budgets={4: 1}, score=lambda rows, level: rows.sum(-1))


# ----------------------------------------------------------------------------
# Programs
# ----------------------------------------------------------------------------


def test_shard_map():
    arrays = make(B=4, H=2, N=17, D=8)
    mesh = make_mesh()
    spec = jax.sharding.PartitionSpec("devices")

    def loss(q, k, v):
        return (fovea.jax.dense(q, k, v, causal=True) ** 2).sum(axis=(1, 2, 3))

    sharded = jax.jit(jax.shard_map(loss, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec))
    near(sharded(*arrays), loss(*arrays))
    found = jax.grad(lambda *each: sharded(*each).sum(), (0, 1, 2))(*map(jnp.asarray, arrays))
    expected = jax.grad(lambda *each: loss(*each).sum(), (0, 1, 2))(*map(jnp.asarray, arrays))
    for one, other in zip(found, expected, strict=True):
        near(one, other)


def test_shard_map_with_what_all_devices_share():
    arrays = multipole("float32", "key", "value")
    mesh = make_mesh()
    spec, shared = jax.sharding.PartitionSpec("devices"), jax.sharding.PartitionSpec()
    specs = {name: spec if name in "qkv" else shared for name in arrays}

    def run(arrays):
        return fovea.jax.fast_multipole(**arrays, group=4)

    sharded = jax.shard_map(run, mesh=mesh, in_specs=(specs,), out_specs=spec)
    near(sharded(arrays), run(arrays))
    # The gradient of what is shared is the sum of those of all devices.
    found, expected = (jax.jit(jax.grad(lambda each, f=f: (f(each) ** 2).sum()))(arrays) for f in (sharded, run))
    jax.tree.map(near, found, expected)


def test_shard_map_of_queries():
    """Keys and codebooks are those of all devices."""
    q, k, v = map(jnp.asarray, make(B=2, H=2, N=16, D=8))
    codebook = jnp.asarray(make(B=1, H=2, N=5, D=8)[0][0])
    spec, shared = jax.sharding.PartitionSpec(None, None, "devices"), jax.sharding.PartitionSpec()

    def loss(q, k, v, codebook):
        k_hat, _ = fovea.jax.quantize(k, jax.lax.stop_gradient(codebook))
        return fovea.jax.dense(q, k_hat, v) ** 2

    sharded = jax.shard_map(loss, mesh=make_mesh(), in_specs=(spec, shared, shared, shared), out_specs=spec)
    arguments = (q, k, v, codebook)
    found, expected = (jax.grad(lambda *each, f=f: f(*each).sum(), (0, 1, 2))(*arguments) for f in (sharded, loss))
    jax.tree.map(near, found, expected)


@pytest.mark.parametrize("axes", [("devices",), (None, None, "devices")])
def test_gradients_of_arrays_whose_types_say_where_they_are(axes):
    """Parts of queries, under a mesh of explicit axes, and sinks that no mesh is known of."""
    q, k, v = map(jnp.asarray, make(B=2, H=2, N=16, D=8))
    sink = jnp.asarray([0.5, -1], jnp.float32)

    def loss(q, k, v, sink):
        return (fovea.jax.dense(q, k, v, causal=True, sink=sink) ** 2).sum()

    expected = jax.grad(loss, (0, 1, 2, 3))(q, k, v, sink)
    with jax.set_mesh(jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Explicit,))):
        parts = jax.device_put(q, jax.sharding.PartitionSpec(*axes))
        found = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(parts, k, v, sink)
    assert found[0].sharding.is_equivalent_to(parts.sharding, 4)
    jax.tree.map(near, found, expected)


def test_export():
    arrays = make(B=2, H=2, N=17, D=8)
    function = jax.jit(jax.grad(lambda *each: fovea.jax.dense(*each, causal=True).sum(), (0, 1, 2)))
    exported = jax.export.export(
        function, disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("fovea")]
    )(*arrays)
    again = jax.export.deserialize(exported.serialize())
    for one, other in zip(again.call(*arrays), function(*arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_programs_for_gpus():
    """They are made without one."""
    types = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in qkv("float32").values()]
    exported = jax.export.export(
        jax.jit(jax.grad(lambda *each: fovea.jax.dense(*each).sum(), (0, 1, 2))), platforms=["cuda"],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("fovea")],
    )(*types)  # fmt: skip
    assert exported.platforms == ("cuda",) and exported.mlir_module().count("@fovea(") == 2
    with pytest.raises(ValueError, match="cpu"):
        exported.call(*qkv("float32").values())


def test_a_process_ends_while_programs_run():
    program = (
        "import jax, numpy as np, fovea.jax\n"
        "q = np.ones((2, 4, 21, 8), np.float32)\n"
        "loss = lambda q: sum(x.sum() for x in fovea.jax.dense(q, q, q, causal=True, return_lse=True))\n"
        "jax.jit(loss)(q)\n"
        "jax.jit(jax.grad(loss))(q)\n"
    )
    environment = {**os.environ, "FOVEA_CACHE_DIR": ""}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
