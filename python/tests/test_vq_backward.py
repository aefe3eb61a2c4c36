# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""vq_backward and the commitment loss against the NumPy references."""

import numpy as np
import pytest
from conftest import TYPES, make, near
from test_vq import make_codebook

import fovea
from fovea import reference

CASES = {
    "blocks": ({}, {}),
    "grouped queries": ({"H": 6, "G": 2, "B": 2}, {}),
    "bias": ({"H": 4, "G": 2}, {"bias": (1, 4, 37, 16)}),
    "no memory": ({"H": 4, "G": 2}, {"memory": 0, "bias": (1, 4, 37, 8)}),
    "long memory": ({"H": 4, "G": 2, "B": 2}, {"memory": 3}),
    "long memory, bias": ({"H": 4, "G": 2}, {"memory": 2, "bias": (1, 4, 37, 24)}),
    "shared bias": ({"H": 4, "G": 2, "B": 2}, {"bias": (1, 1, 16)}),
    "encoder": ({}, {"causal": False}),
    "squared relu": ({"E": 5}, {"weighting": "squared_relu"}),
    "squared relu, bias": ({}, {"weighting": "squared_relu", "bias": (2, 1, 16)}),
    "one row": ({"N": 1}, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("type", ["float32", "float64"])
def test_backward(case, type, target):
    sizes, options = CASES[case]
    q, k, v = make(type, **sizes)
    codebook = make_codebook(k.shape[1], 9, k.shape[3], type)
    rng = np.random.default_rng(8)
    options = {"block": 8, "scale": 0.3, **options}
    if "bias" in options:
        options["bias"] = rng.standard_normal(options["bias"]).astype(TYPES[type])
    has_lse = options.get("weighting") != "squared_relu"
    forward = fovea.vq(q, k, v, codebook, **options, return_lse=has_lse, target=target)
    out, lse = forward if has_lse else (None, None)
    d_out = rng.standard_normal((*q.shape[:3], v.shape[3])).astype(TYPES[type])
    if has_lse:
        options["d_lse"] = rng.standard_normal(q.shape[:3]).astype(lse.dtype)
    found = fovea.vq_backward(d_out, q, k, v, codebook, out, lse, **options, target=target)
    bias = options.get("bias")
    expected = reference.vq_backward(
        d_out, q, k, v, codebook, **{**options, "bias": None if bias is None else
                                     bias.reshape((1,) * (4 - bias.ndim) + bias.shape)},
    )  # fmt: skip
    assert len(found) == (3 if bias is None else 4)
    for one, other in zip(found, expected):
        near(one, other, type)


def test_codes_instead_of_keys():
    q, k, v = make()
    codebook = make_codebook(2, 9, 16)
    codes = fovea.quantize(k, codebook)[1]
    out, lse = fovea.vq(q, k, v, codebook, block=8, return_lse=True)
    one = fovea.vq_backward(out, q, k, v, codebook, out, lse, block=8)
    other = fovea.vq_backward(out, q, codes, v, codebook, out, lse, block=8)
    assert all(np.array_equal(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize(
    "options", [{}, {"causal": False}, {"bias": (1, 2, 2500, 16)}, {"bias": (1, 1, 2500, 16)}], ids=str
)
def test_the_same_bits_for_any_number_of_threads(options):
    """Of a head that is divided into chunks, and of one whose bias is not its own."""
    q, k, v = make(B=1, H=2, G=1, N=2500)
    codebook = make_codebook(1, 9, 16)
    options = {"block": 8, **options}
    if "bias" in options:
        options["bias"] = np.random.default_rng(8).standard_normal(options["bias"], np.float32)
    out, lse = fovea.vq(q, k, v, codebook, **options, return_lse=True)
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            found.append(fovea.vq_backward(out, q, k, v, codebook, out, lse, **options))
    finally:
        fovea.set_num_threads(0)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other))


CUTS = (0, 3, 4, 4, 21, 37)


def run_windows(q, k, v, codebook, cuts=CUTS, d_out=None, target="cpu", **options):
    """Gradients of all windows, one after the other, joined."""
    windows = [slice(low, high) for low, high in zip(cuts, cuts[1:])]

    def rows(array, window):
        return array[:, :, window].copy()

    has_lse = options.get("weighting") != "squared_relu"
    forward, state = [], None
    for window in windows:
        arrays = [rows(x, window) for x in (q, k, v)]
        results = fovea.vq(*arrays, codebook, **options, state=state, return_state=True,
                           return_lse=has_lse, target=target)  # fmt: skip
        forward.append((state, arrays, results[0], results[1] if has_lse else None))
        state = results[-1]
    found, d_state = [], None
    for window, (state, arrays, out, lse) in reversed(list(zip(windows, forward))):
        gradients = fovea.vq_backward(
            rows(d_out, window), *arrays, codebook, out if has_lse else None, lse, **options,
            state=state, d_next_state=d_state, target=target,
        )  # fmt: skip
        found.insert(0, gradients[:3])
        d_state = gradients[-1]
    return [np.concatenate(parts, 2) for parts in zip(*found)]


@pytest.mark.parametrize(
    "type,weighting",
    [("float64", "softmax"), ("float32", "squared_relu"), ("float16", "softmax"), ("bfloat16", "softmax")],
)
@pytest.mark.parametrize(
    "cuts,memory", [(CUTS, 1), (CUTS, 0), (CUTS, 4), ((0, 5, 600, 1300), 1), ((0, 5, 600, 1300), 150)], ids=str
)
def test_windows_compose(cuts, memory, type, weighting, target):
    """Gradients of windows, from the last to the first, are those of the whole: also
    for a window of nothing, and through one that is shorter than a block."""
    q, k, v = make(type, B=2, H=4, G=2, E=5, N=cuts[-1])
    codebook = make_codebook(2, 9, 16, type)
    d_out = np.random.default_rng(8).standard_normal((*q.shape[:3], 5)).astype(TYPES[type])
    options = {"block": 4, "memory": memory, "scale": 0.3, "weighting": weighting}
    found = run_windows(q, k, v, codebook, cuts, d_out=d_out, target=target, **options)
    codes = reference.quantize(k, codebook)[1]
    expected = reference.vq_backward(d_out, q, codes, v, codebook, **options)
    for one, other in zip(found, expected):
        near(one, other, type)


@pytest.mark.parametrize(
    "position,length,memory",
    [(0, 11, 1), (5, 11, 1), (8, 11, 1), (30, 11, 1), (30, 1100, 1), (30, 11, 0), (9, 21, 3), (60, 1100, 5)],
)
def test_state(position, length, memory, target):
    """Every part of the gradient of a state, and from every part of the next."""
    q, k, v = make("float64", B=2, H=4, G=2, N=position + length)
    codebook = make_codebook(2, 9, 16, "float64")
    rng = np.random.default_rng(8)
    options, ring = {"block": 8, "memory": memory, "scale": 0.3}, 8 * (memory + 1)
    first, last = ([x[:, :, rows].copy() for x in (q, k, v)]
                   for rows in (slice(0, position), slice(position, None)))  # fmt: skip
    state = fovea.vq(*first, codebook, **options, return_state=True)[-1]
    out, lse, after = fovea.vq(*last, codebook, **options, state=state, return_state=True, return_lse=True)
    d_out = rng.standard_normal(out.shape)
    d_next = fovea.VQStateGradient(
        rng.standard_normal(after.mean.shape), rng.standard_normal((*after.codes.shape, 16)),
        rng.standard_normal(after.values.shape))  # fmt: skip
    found = fovea.vq_backward(d_out, *last, codebook, out, lse, **options, state=state,
                              d_next_state=d_next, target=target)  # fmt: skip

    def kept(position):
        """The rows of tokens that are read one by one, oldest first."""
        return np.arange(max(position // 8 - memory, 0) * 8, position) % ring

    rows, next_rows = kept(position), kept(position + length)
    expected = reference.vq_backward(
        d_out, last[0], reference.quantize(last[1], codebook)[1], last[2], codebook, **options,
        state=reference.VQState(state.mean, state.count, state.codes[:, :, rows], state.values[:, :, rows], position),
        d_next_state=reference.VQStateGradient(d_next.mean, d_next.keys[:, :, next_rows], d_next.values[:, :, next_rows]),
    )  # fmt: skip
    d_q, *gradients, _, d_state = expected
    near(found[0], d_q, "float64")
    near(found[3].mean, d_state.mean, "float64")
    # Rows of tokens that nothing reads any more pass on what they get: to the
    # window if it wrote them, else to the state.
    unread = np.setdiff1d(np.arange(ring), next_rows)
    token = (unread - position) % ring
    written = token < length
    token += (length - 1 - token) // ring * ring * written
    for index, name in ((1, "keys"), (2, "values")):
        next, want = getattr(d_next, name), gradients[index - 1].copy()
        np.add.at(want, (slice(None), slice(None), token[written]), next[:, :, unread[written]])
        near(found[index], want, "float64")
        want = np.zeros(next.shape)
        want[:, :, rows] = getattr(d_state, name)
        want[:, :, unread[~written]] += next[:, :, unread[~written]]
        near(getattr(found[3], name), want, "float64")


@pytest.mark.parametrize("type", ["float32", "float64"])
def test_state_and_bias_over_several_chunks(type):
    """The head is divided into chunks of at least 512 tokens; the first reads the
    state, all of them the bias."""
    position, length = 30, 1300
    q, k, v = make(type, H=2, G=1, E=5, N=position + length)
    codebook = make_codebook(1, 9, 16, type)
    rng = np.random.default_rng(8)
    options = {"block": 8, "scale": 0.3}
    first, last = ([x[:, :, rows].copy() for x in (q, k, v)]
                   for rows in (slice(0, position), slice(position, None)))  # fmt: skip
    state = fovea.vq(*first, codebook, **options, return_state=True)[-1]
    options["bias"] = rng.standard_normal((1, 2, length, 16)).astype(TYPES[type])
    out, lse = fovea.vq(*last, codebook, **options, state=state, return_lse=True)
    d_out = rng.standard_normal(out.shape).astype(TYPES[type])
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            gradients = fovea.vq_backward(d_out, *last, codebook, out, lse, **options, state=state)
            found.append([*gradients[:4], *gradients[4]])
    finally:
        fovea.set_num_threads(0)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))

    # The tokens of the state that are read one by one, oldest first.
    kept = np.arange(position // 8 * 8 - 8, position) % 16
    codes = reference.quantize(last[1], codebook)[1]
    *expected, d_state = reference.vq_backward(
        d_out, last[0], codes, last[2], codebook, **options,
        state=reference.VQState(state.mean, state.count, state.codes[:, :, kept], state.values[:, :, kept], position),
    )  # fmt: skip
    for one, other in zip(found[0], [*expected, d_state.mean], strict=False):
        near(one, other, type)
    for rows, other in zip(found[0][5:], (d_state.keys, d_state.values), strict=True):
        near(rows[:, :, kept], other, type)


WINDOWS = """
func.func @f(%q: tensor<1x2x24x4xf64>, %k: tensor<1x1x24x4xf64>, %v: tensor<1x1x24x3xf64>, %c: tensor<1x5x4xf64>) -> tensor<1x2x24x3xf64> {
  %zi = tensor.empty() : tensor<1x1x24xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x1x24x4xf64>, tensor<1x5x4xf64>) outs(%zi : tensor<1x1x24xi32>) -> tensor<1x1x24xi32>
  %o0 = tensor.empty() : tensor<1x2x24x3xf64>
$CALLS
  return %o$LAST : tensor<1x2x24x3xf64>
}
"""


def windows_function(cuts):
    """A function of one attn.vq for each window."""
    state = "tensor<1x1x5x3xf64>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x3xf64>, tensor<i64>"
    text = ""
    for i, (low, high) in enumerate(zip(cuts, cuts[1:])):
        N = high - low
        for name, shape, width in (("q", "1x2x24x4xf64", 4), ("z", "1x1x24xi32", 0), ("v", "1x1x24x3xf64", 3)):
            heads, last = 2 if name == "q" else 1, f", {width}" if width else ""
            part = f"tensor<1x{heads}x{N}x{width}xf64>" if width else f"tensor<1x1x{N}xi32>"
            text += (f"  %{name}{i} = tensor.extract_slice %{name}[0, 0, {low}{', 0' * bool(width)}] "
                     f"[1, {heads}, {N}{last}] [1, 1, 1{', 1' * bool(width)}] : tensor<{shape}> to {part}\n")  # fmt: skip
        parts = [f"tensor<1x2x{N}x4xf64>", f"tensor<1x1x{N}xi32>", f"tensor<1x1x{N}x3xf64>", "tensor<1x5x4xf64>"]
        for part, kind in enumerate(state.split(", ")):
            text += f"  %n{i}_{part} = tensor.empty() : {kind}\n"
        before = f"state({', '.join(f'%r{i - 1}#{part + 1}' for part in range(5))} : {state})" if i else ""
        out = f"tensor<1x2x{N}x3xf64>"
        text += (f"  %e{i} = tensor.empty() : {out}\n"
                 f"  %r{i}:6 = attn.vq ins(%q{i}, %z{i}, %v{i}, %c : {', '.join(parts)}) {before} outs(%e{i} : {out})"
                 f" next_state({', '.join(f'%n{i}_{part}' for part in range(5))} : {state})"
                 f" {{block = 4 : i64, causal}} -> {out}, {state}\n"
                 f"  %o{i + 1} = tensor.insert_slice %r{i}#0 into %o{i}[0, 0, {low}, 0] [1, 2, {N}, 3] [1, 1, 1, 1]"
                 f" : {out} into tensor<1x2x24x3xf64>\n")  # fmt: skip
    return WINDOWS.replace("$CALLS", text).replace("$LAST", str(len(cuts) - 1))


def test_vjp_of_windows(target):
    """A function of windows has the gradients of one of the whole sequence."""
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(s) for s in ((1, 2, 24, 4), (1, 1, 24, 4), (1, 1, 24, 3), (1, 5, 4), (1, 2, 24, 3))]
    whole, parts = (fovea.compile(windows_function(cuts), target=target).vjp(arguments=[0, 1, 2])(*arrays)
                    for cuts in ((0, 24), (0, 3, 13, 24)))  # fmt: skip
    for one, other in zip(parts, whole):
        assert np.abs(other).max() > 0.1
        near(one, other, "float64")


def test_the_same_bits_of_windows_for_any_number_of_threads():
    q, k, v = make(B=2, H=4, G=2, N=100)
    codebook = make_codebook(2, 9, 16)
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            found.append(run_windows(q, k, v, codebook, (0, 37, 70, 100), d_out=q, block=8))
    finally:
        fovea.set_num_threads(0)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other))


@pytest.mark.parametrize("type", TYPES)
def test_commitment_loss(type, target):
    _, k, _ = make(type, B=2, N=37)
    codebook = make_codebook(2, 9, 16, type)
    k_hat, codes = fovea.quantize(k, codebook)
    loss, gradient = reference.commitment_loss(k, codebook, codes)
    found = fovea.commitment_loss(k, k_hat, target=target)
    assert found.shape == () and found.dtype == (np.float64 if type == "float64" else np.float32)
    np.testing.assert_allclose(found, loss, rtol=1e-5)
    near(fovea.commitment_loss_backward(3.0, k, k_hat, target=target), 3 * gradient, type)


def make_state(**changes):
    """The state before the first token of `make`, in blocks of 8."""
    kept = np.zeros((1, 2, 16), np.int32)
    values = np.zeros((1, 2, 16, 16), np.float32)
    state = fovea.VQState(values[:, :, :9], np.zeros((1, 2, 9), np.int32), kept, values, np.array(0))
    return state._replace(**changes)


def refuses(text, **changes):
    q, k, v = make()
    arrays = {
        "d_out": v, "q": q, "k": k, "v": v, "codebook": make_codebook(2, 9, 16), "out": v,
        "lse": np.zeros((1, 2, 37), np.float32), "block": 8,
    }  # fmt: skip
    with pytest.raises(ValueError) as info:
        fovea.vq_backward(**{**arrays, **changes})
    assert text in str(info.value)


def test_bad_input():
    refuses("d_out: found shape (1, 2, 36, 16), needed (1, 2, 37, 16)",
            d_out=np.zeros((1, 2, 36, 16), np.float32))  # fmt: skip
    refuses("d_out: found element type float64, needed float32", d_out=np.zeros((1, 2, 37, 16)))
    refuses("d_out: found element type int32, needed one of float16", d_out=np.zeros((1, 2, 37, 16), np.int32))
    refuses("lse: found shape (1, 2, 38), needed (1, 2, 37)", lse=np.zeros((1, 2, 38), np.float32))
    refuses("lse: found none, needed that of vq", lse=None)
    refuses("out: found one, needed none without a soft-max", weighting="squared_relu")
    refuses("causal: found False, needed True with a bias", causal=False,
            bias=np.zeros((1, 1, 37, 16), np.float32))  # fmt: skip
    refuses("causal: found False, needed True with a state", causal=False, state=make_state())
    refuses("state.mean: found shape (1, 2, 9, 15), needed (1, 2, 9, 16)",
            state=make_state(mean=np.zeros((1, 2, 9, 15), np.float32)))  # fmt: skip
    refuses("state.position: found -1, needed at least 0", state=make_state(position=np.array(-1)))
    d_next = [np.zeros((1, 2, rows, 16), np.float32) for rows in (9, 16, 16)]
    refuses("d_next_state: found 2 parts, needed 3", d_next_state=d_next[:2])
    refuses("d_next_state.keys: found shape (1, 2, 9, 16), needed (1, 2, 16, 16)", d_next_state=d_next[:1] * 3)
    with pytest.raises(fovea.FoveaError, match=r"attn.vq_backward: kept codes\[0, 1, 3\] must be at least 0"):
        q, k, v = make()
        state = make_state()
        state.codes[0, 1, 3] = -1
        fovea.vq_backward(v, q, k, v, make_codebook(2, 9, 16), v, v[..., 0].copy(), block=8, state=state)
    with pytest.raises(ValueError, match="k_hat: found shape"):
        fovea.commitment_loss(np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 3, 5)))
    with pytest.raises(fovea.FoveaError, match=r"attn.vq_backward: codes\[0, 0, 3\] must be at least 0"):
        codes = np.zeros((1, 2, 37), np.int32)
        codes[0, 0, 3] = 9
        q, _, v = make()
        fovea.vq_backward(v, q, codes, v, make_codebook(2, 9, 16), v, v[..., 0].copy(), block=8)


SPOILED = ("q", "v", "d_out", "mean", "values", "d_mean", "d_keys", "d_values")


def spoil(arrays, name, rng):
    """The arrays with one number of one of them not finite."""
    arrays = {key: array.copy() for key, array in arrays.items()}
    at = tuple(rng.integers(extent) for extent in arrays[name].shape)
    arrays[name][at] = rng.choice([np.nan, np.inf])
    return arrays


@pytest.mark.parametrize(
    "name,with_bias",
    [(name, False) for name in SPOILED] + [(name, True) for name in SPOILED if name not in ("q", "d_out")],
)
def test_what_is_not_read_has_no_influence(name, with_bias):
    """NaN and infinity reach the gradients of the entries that they are part of, as
    in plain loops over these entries, and no others."""
    position, N, block = 10, 14, 3
    rng = np.random.default_rng(8)
    q, k, v = make(B=2, H=4, G=2, D=4, E=3, N=position + N)
    codebook = make_codebook(2, 6, 4)
    # One codeword is that of no token.
    codes = rng.integers(0, 5, (2, 2, position + N), np.int32)
    first, last = ([np.ascontiguousarray(x[:, :, rows]) for x in (q, codes, v)]
                   for rows in (slice(0, position), slice(position, None)))  # fmt: skip
    state = fovea.vq(*first, codebook, block=block, return_state=True)[-1]
    d_next = [rng.standard_normal((*state.mean.shape[:2], rows, width)).astype(np.float32)
              for rows, width in ((6, 3), (2 * block, 4), (2 * block, 3))]  # fmt: skip
    d_out = rng.standard_normal((2, 4, N, 3)).astype(np.float32)
    clean = dict(zip(SPOILED, (last[0], last[2], d_out, state.mean, state.values, *d_next)))
    clean["mean"][state.count == 0] = np.nan
    options = {"block": block, "scale": 0.3}
    if with_bias:
        options["bias"] = rng.standard_normal((2, 4, N, 2 * block)).astype(np.float32)
        options["bias"][rng.random(options["bias"].shape) < 0.3] = -np.inf

    def gradients(arrays, target):
        given = state._replace(mean=arrays["mean"], values=arrays["values"])
        inputs = arrays["q"], last[1], arrays["v"], codebook
        out, lse = fovea.vq(*inputs, **options, state=given, return_lse=True, target="reference")
        next_state = fovea.VQStateGradient(arrays["d_mean"], arrays["d_keys"], arrays["d_values"])
        found = fovea.vq_backward(arrays["d_out"], *inputs, out, lse, **options, state=given,
                                  d_next_state=next_state, target=target)  # fmt: skip
        return [*found[:-1], *found[-1]]

    assert all(np.isfinite(one).all() for one in gradients(clean, "cpu"))
    for _ in range(6):
        arrays = spoil(clean, name, rng)
        for one, other in zip(gradients(arrays, "cpu"), gradients(arrays, "reference")):
            np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
