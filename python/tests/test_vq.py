# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""vq and vq_decode against the NumPy references, and what they refuse."""

import numpy as np
import pytest
from conftest import TYPES, check, make

import fovea
from fovea import reference

CASES = {
    "one block": ({"N": 7}, {"block": 8}),
    "blocks": ({"N": 37}, {"block": 8}),
    "one row": ({"N": 1}, {"block": 4}),
    "grouped queries": ({"H": 6, "G": 2, "B": 2}, {"block": 8}),
    "one key head": ({"H": 4, "G": 1, "E": 50}, {"block": 8}),
    "encoder": ({}, {"block": 8, "causal": False}),
    "scale": ({}, {"block": 8, "scale": 0.25}),
    "no memory": ({"N": 37}, {"block": 8, "memory": 0}),
    "long memory": ({"N": 37}, {"block": 4, "memory": 3}),
    "squared relu": ({}, {"block": 8, "weighting": "squared_relu"}),
    "encoder, squared relu": ({}, {"block": 8, "causal": False, "weighting": "squared_relu"}),
    "serial": ({}, {"block": 8, "reduction": "serial"}),
    "matmul": ({}, {"block": 8, "reduction": "matmul"}),
    "associative": ({}, {"block": 8, "reduction": "associative"}),
}


def make_codebook(G, S, D, type="float32", seed=5):
    return np.random.default_rng(seed).standard_normal((G, S, D)).astype(TYPES[type])


def expect(*arrays, reduction=None, **options):
    return reference.vq(*arrays, **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shared", [True, False])
def test_vq(case, shared, target):
    sizes, options = CASES[case]
    q, k, v = make(**sizes)
    codebook = make_codebook(1 if shared else k.shape[1], 9, k.shape[3])
    found = fovea.vq(q, k, v, codebook, **options, target=target)
    check(found, expect(q, k, v, codebook, **options))
    codes = fovea.reference.quantize(k, codebook)[1].astype(np.int32)
    again = fovea.vq(q, codes, v, codebook, **options, target=target)
    check(again, expect(q, codes, v, codebook, **options))
    if options.get("weighting") != "squared_relu":
        both = fovea.vq(q, codes, v, codebook, **options, return_lse=True, target=target)
        check(both, expect(q, codes, v, codebook, **options, return_lse=True))


@pytest.mark.parametrize("type,memory", [*((type, 1) for type in TYPES), ("float32", 0), ("float32", 3)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_windows_and_decoding_continue(type, memory, with_bias, target):
    N, block = 29, 4
    options = {"block": block, "memory": memory}
    q, k, v = make(type, H=4, G=2, N=N)
    codebook = make_codebook(2, 6, 16, type)
    codes = np.random.default_rng(3).integers(0, 6, (1, 2, N), np.int32)
    bias = None
    if with_bias:
        bias = np.random.default_rng(4).standard_normal((1, 4, N, (memory + 1) * block)).astype(TYPES[type])
    expected = reference.vq(q, codes, v, codebook, **options, bias=bias)

    def part(low, high):
        cut = [np.ascontiguousarray(x[:, :, low:high]) for x in (q, codes, v)]
        return cut, None if bias is None else np.ascontiguousarray(bias[:, :, low:high])

    outs, state = [], None
    for low, high in ((0, 5), (5, 16)):
        arrays, local = part(low, high)
        out, state = fovea.vq(*arrays, codebook, **options, bias=local, state=state,
                              return_state=True, target=target)  # fmt: skip
        outs.append(out)
    for token in range(16, N):
        arrays, local = part(token, token + 1)
        kept = state
        out, state = fovea.vq_decode(*arrays, codebook, state, **options, bias=local, target=target)
        assert all(new is old for new, old in zip(state, kept))
        outs.append(out)
    assert state.position == N
    check(np.concatenate(outs, axis=2), expected, type)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_decoding_in_parts(target):
    """More rows than single queries on a GPU read in one part, before and after blocks go to the cache."""
    block = 300
    q, k, v = make(H=4, G=2, N=1210)
    codebook = make_codebook(2, 6, 16)
    codes = np.random.default_rng(3).integers(0, 6, (1, 2, 1210), np.int32)
    expected = reference.vq(q, codes, v, codebook, block=block)
    for low in (0, 299, 300, 597, 600, 1198):
        state = None
        if low:
            cut = [np.ascontiguousarray(x[:, :, :low]) for x in (q, codes, v)]
            _, state = fovea.vq(*cut, codebook, block=block, return_state=True)
        for token in range(low, low + 3):
            cut = [np.ascontiguousarray(x[:, :, token : token + 1]) for x in (q, codes, v)]
            out, state = fovea.vq_decode(*cut, codebook, state, block=block, target=target)
            check(out, expected[:, :, token : token + 1])


def decode_from(arrays, codebook, state, low, tokens, **options):
    """Outputs of the tokens from `low` on, and the state behind them, which takes the place of the one before."""
    outs = []
    for token in range(low, low + tokens):
        cut = [np.ascontiguousarray(x[:, :, token : token + 1]) for x in arrays]
        kept = state
        out, state = fovea.vq_decode(*cut, codebook, state, **options)
        assert all(new is old for new, old in zip(state, kept))
        outs.append(out)
    return np.concatenate(outs, axis=2), state


def start_at(low, arrays, codebook, **options):
    cut = [np.ascontiguousarray(x[:, :, :low]) for x in arrays]
    return fovea.vq(*cut, codebook, **options, return_state=True, target="cpu")[1]


# Groups of one, of heads that fill a tile, of odd numbers, one key head of more than a tile.
GROUPS = [(2, 2), (3, 1), (8, 2), (8, 1), (10, 2), (16, 1), (34, 1)]


@pytest.mark.parametrize("type", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("H,G", GROUPS)
def test_heads_that_share_a_state(H, G, type):
    """Rows of a tile are heads on a GPU. In the first block, at its end, and where the ring of kept tokens has turned."""
    options = {"block": 70, "memory": 1}
    q, k, v = make(type, B=2, H=H, G=G, N=224, D=24, E=40)
    codebook = make_codebook(G, 67, 24, type)
    codes = np.random.default_rng(3).integers(0, 67, (2, G, 224), np.int32)
    arrays = q, codes, v
    expected = reference.vq(*arrays, codebook, **options)
    for low in (1, 69, 139, 221):
        starts = [start_at(low, arrays, codebook, **options) for _ in range(2)]
        found, state = decode_from(arrays, codebook, starts[0], low, 2, **options, target="gpu-sim")
        check(found, expected[:, :, low : low + 2], type)
        # A second reference, which shares no code with the first.
        other, after = decode_from(arrays, codebook, starts[1], low, 2, **options, target="reference")
        check(found, other, type)
        check(state.mean, after.mean)
        assert all(np.array_equal(part, of_reference) for part, of_reference in zip(state[1:], after[1:]))


@pytest.mark.parametrize("memory", [0, 1, 2, 3])
@pytest.mark.parametrize("low", [5, 23, 75])
def test_states_hold_anything_behind(low, memory):
    """Rows of the ring that hold no token, or one that has gone to the means, and means of no token are not read."""
    options = {"block": 16, "memory": memory}
    q, k, v = make(B=2, H=6, G=2, N=80)
    codebook = make_codebook(2, 9, 16)
    arrays = q, np.random.default_rng(3).integers(0, 8, (2, 2, 80), np.int32), v
    clean, dirty = (start_at(low, arrays, codebook, **options) for _ in range(2))
    kept, present = (memory + 1) * 16, low // 16 * 16
    unread = [row for row in range(kept) if row not in [t % kept for t in range(max(0, present - memory * 16), low)]]
    assert unread
    dirty.values[:, :, unread] = np.nan
    dirty.mean[np.asarray(dirty.count) == 0] = np.inf
    expected, _ = decode_from(arrays, codebook, clean, low, 1, **options, target="gpu-sim")
    found, _ = decode_from(arrays, codebook, dirty, low, 1, **options, target="gpu-sim")
    assert np.array_equal(found, expected)
    check(found, reference.vq(*arrays, codebook, **options)[:, :, low : low + 1])


@pytest.mark.parametrize("tokens", [2, 3, 7])
@pytest.mark.parametrize("low", [1, 9, 30])
def test_a_few_tokens_from_a_state(low, tokens):
    """Fewer than heads that share a key head: blocks of the sequence end between them."""
    options = {"block": 8, "memory": 2}
    q, k, v = make(B=2, H=8, G=1, N=40)
    codebook = make_codebook(1, 9, 16)
    arrays = q, np.random.default_rng(3).integers(0, 9, (2, 1, 40), np.int32), v
    state = start_at(low, arrays, codebook, **options)
    cut = [np.ascontiguousarray(x[:, :, low : low + tokens]) for x in arrays]
    found = fovea.vq(*cut, codebook, **options, state=state, return_lse=True, target="gpu-sim")
    for target in ("cpu", "reference"):
        check(found, fovea.vq(*cut, codebook, **options, state=state, return_lse=True, target=target))
    check(found[0], reference.vq(*arrays, codebook, **options)[:, :, low : low + tokens])


def test_refuses_positions_that_are_none():
    """Kernels of a GPU check what the host does not read."""
    q, k, v = make(N=4)
    codebook = make_codebook(2, 5, 16)
    state = fovea.vq(q, k, v, codebook, block=4, return_state=True)[1]
    token = [np.ascontiguousarray(x[:, :, :1]) for x in (q, k, v)]
    kept = [part.copy() for part in state]
    for wrong, clamped in ((2147483647, 2147483647), (1 << 40, 2147483647)):
        message = rf"position of state\[0, 0, 0\] must be at least 0 and below 2147483647, but got {clamped}"
        state.position[...] = wrong
        with pytest.raises(fovea.FoveaError, match="attn.vq_decode: " + message):
            fovea.vq_decode(*token, codebook, state, block=4, target="gpu-sim")
        assert state.position == wrong
        assert all(np.array_equal(part, before) for part, before in zip(state[:4], kept[:4]))


def test_decoding_from_nothing(target):
    q, k, v = make(N=9)
    codebook = make_codebook(2, 5, 16)
    expected = reference.vq(q, k, v, codebook, block=2)
    state = None
    for token in range(9):
        cut = [np.ascontiguousarray(x[:, :, token : token + 1]) for x in (q, k, v)]
        out, state = fovea.vq_decode(*cut, codebook, state, block=2, target=target)
        check(out, expected[:, :, token : token + 1])


@pytest.mark.parametrize("type", TYPES)
def test_copies_of_states(type, tmp_path):
    q, k, v = make(type, N=14)
    codebook = make_codebook(2, 5, 16, type)
    _, state = fovea.vq(q, k, v, codebook, block=3, return_state=True)
    state.save(tmp_path / "state")
    copies = [state.fork(), fovea.VQState.load(tmp_path / "state")]
    one = [x[:, :, :1] for x in (q, k, v)]
    before = [np.array(part) for part in state]
    out, _ = fovea.vq_decode(*one, codebook, state, block=3)
    for copy in copies:
        assert copy.nbytes == state.nbytes
        assert all(np.array_equal(*pair) for pair in zip(copy, before))
        assert np.array_equal(fovea.vq_decode(*one, codebook, copy, block=3)[0], out)
        assert all(np.array_equal(*pair) for pair in zip(copy, state))
    data = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(data[:-2] + b"??")
    with pytest.raises(ValueError, match="path: found '.*', which is damaged"):
        fovea.VQState.load(tmp_path / "state")


def test_no_tokens():
    q, k, v = make(N=0)
    codebook = make_codebook(2, 5, 16)
    out, lse, state = fovea.vq(
        q, k, v, codebook, block=4, return_lse=True, return_state=True
    )
    assert out.shape == (1, 2, 0, 16) and lse.shape == (1, 2, 0) and state.position == 0
    q, k, v = make(N=3)
    out, state = fovea.vq(q, k, v, codebook, block=4, state=state, return_state=True)
    check(out, reference.vq(q, k, v, codebook, block=4))


def test_nan_key_has_code_0(target):
    q, k, v = make(N=20)
    codebook = make_codebook(2, 5, 16)
    k[0, 1, 7, 3] = np.nan
    codes = reference.quantize(k, codebook)[1].astype(np.int32)
    assert codes[0, 1, 7] == 0
    found = fovea.vq(q, k, v, codebook, block=4, target=target)
    check(found, reference.vq(q, codes, v, codebook, block=4))


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
def test_codes_of_int64(target):
    """The same numbers; those that have no 32 bits are refused."""
    q, k, v = make(N=20)
    codebook = make_codebook(2, 5, 16)
    codes = fovea.quantize(k, codebook)[1].astype(np.int64)
    expected = fovea.vq(q, codes.astype(np.int32), v, codebook, block=4, return_lse=True, target=target)
    found = fovea.vq(q, codes, v, codebook, block=4, return_lse=True, target=target)
    strided = np.stack([codes, codes + 9], axis=-1)[..., 0]
    strided = fovea.vq(q, strided, v, codebook, block=4, return_lse=True, target=target)
    for one, other, third in zip(expected, found, strided):
        assert np.array_equal(one, other) and np.array_equal(one, third)
    gradients = [fovea.vq_backward(v, q, kind, v, codebook, *expected, block=4, target=target)
                 for kind in (codes, codes.astype(np.int32))]  # fmt: skip
    for one, other in zip(*gradients):
        assert np.array_equal(one, other)
    sums, counts = np.zeros_like(codebook), np.zeros((2, 5), np.float32)
    for one, other in zip(*(fovea.codebook_update(k, kind, sums, counts, target=target)
                            for kind in (codes, codes.astype(np.int32)))):  # fmt: skip
        assert np.array_equal(one, other)
    for wrong, clamped in (((1 << 32) + codes[0, 1, 7], 2147483647), (-(1 << 32), -2147483648)):
        codes[0, 1, 7] = wrong
        # Kernels narrow codes, and check them then.
        narrowed = rf"codes\[0, 1, 7\] must be .* below 5, but got {clamped}"
        error = fovea.FoveaError if target == "gpu-sim" else ValueError
        with pytest.raises(error, match=narrowed if target == "gpu-sim" else f"k: found {wrong}, needed codes of 32 bits"):
            fovea.vq(q, codes, v, codebook, block=4, target=target)
        with pytest.raises(error, match=narrowed if target == "gpu-sim" else "codes: found .*, needed codes of 32 bits"):
            fovea.codebook_update(k, codes, sums, counts, target=target)


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_a_wide_codebook_is_not_rounded(type, target):
    """Of two codewords that are one in the narrow type, keys and scores tell which it is."""
    q, k, v = make(type, N=20)
    codebook = make_codebook(2, 5, 16)
    codebook[:, 1] = codebook[:, 0] * (1 + 2.0**-12)
    k[:, :, 3] = codebook[:, 0].astype(k.dtype)
    codes = reference.quantize(k, codebook)[1].astype(np.int32)
    k_hat, found = fovea.quantize(k, codebook, target=target)
    assert np.array_equal(found, codes) and k_hat.dtype == k.dtype
    expected = np.stack([codebook[g][codes[:, g]] for g in range(2)], axis=1)
    assert np.array_equal(k_hat, expected.astype(k.dtype))
    out = reference.vq(q, codes, v, codebook, block=4, return_lse=True)
    # The lse is not rounded to the narrow type: it tells products of rounded codewords.
    check(fovea.vq(q, k, v, codebook, block=4, return_lse=True, target=target), out, type)

REFUSED = {
    "codebook width": ({"codebook": np.zeros((2, 5, 8), np.float32)}, "codebook: found head width 8, needed 16"),
    "codebook heads": ({"codebook": np.zeros((3, 5, 16), np.float32)}, "codebook: found head count 3, needed 2 or 1"),
    "no codewords": ({"codebook": np.zeros((2, 0, 16), np.float32)}, "codebook: found no codewords, needed at least 1"),
    "codebook type": ({"codebook": np.zeros((2, 5, 16))}, "codebook: found element type float64, needed float32"),
    "block 0": ({"block": 0}, "block: found 0, needed an integer of at least 1"),
    "negative block": ({"block": -3}, "block: found -3, needed an integer of at least 1"),
    "absurd block": ({"block": 2**40}, "block: found 1099511627776, needed at most 1073741824"),
    "absurd memory": ({"memory": 2**40}, "memory: found 1099511627776, needed at most 134217728"),
    "absurd block of a state": (
        {"block": 10**9, "return_state": True},
        r"^block: found 1000000000 with a memory of 1, needed \(memory \+ 1\) block of at most 16777216 for a state",
    ),
    "a state that is no tuple": ({"state": 3}, "^state: found int, needed a tuple of 5 arrays"),
    "terms that are no tuple": ({"relative": 3}, "^relative: found int, needed a tuple of 2 arrays"),
    "bias width": ({"bias": np.zeros((1, 2, 37, 8), np.float32)}, r"bias: found shape \[1, 2, 37, 8\], needed one that broadcasts"),
    "narrow bias": ({"bias": np.zeros((1, 2, 37, 1), np.float32)}, "bias: found extent 1 in dimension 3, needed 16"),
    "codes of another type": (
        {"k": np.zeros((1, 2, 37), np.int16)},
        "k: found element type int16, needed that of q, or int32 or int64 for codes",
    ),
    "codes of another rank": ({"k": np.zeros((1, 2, 37, 1), np.int32)}, r"k: found rank 4, needed rank 3 \[B,G,N\]"),
    "codes of another length": ({"k": np.zeros((1, 2, 36), np.int32)}, "k: found length 36, needed 37"),
    "weighting": ({"weighting": "linear"}, "weighting: found 'linear', needed 'softmax' or 'squared_relu'"),
    "reduction": ({"reduction": "tree"}, "reduction: found 'tree', needed 'auto', 'serial'"),
    "bias without causal": (
        {"causal": False, "bias": np.zeros((1, 2, 37, 16), np.float32)},
        "causal: found False, needed True with a bias, terms by distance or a state",
    ),
    "state without causal": (
        {"causal": False, "return_state": True},
        "causal: found False, needed True with a bias, terms by distance or a state",
    ),
    "lse without soft-max": ({"weighting": "squared_relu", "return_lse": True}, "return_lse: found True, needed False without a soft-max"),
    "short state": ({"state": (1, 2)}, "state: found 2 parts, needed 5"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case):
    changes, message = REFUSED[case]
    q, k, v = make(N=37)
    arguments = {"q": q, "k": k, "v": v, "codebook": make_codebook(2, 5, 16), "block": 8} | changes
    with pytest.raises(ValueError, match=message):
        fovea.vq(**arguments)


def test_refuses_states_of_another_shape():
    q, k, v = make(N=4)
    codebook = make_codebook(2, 5, 16)
    _, state = fovea.vq(q, k, v, codebook, block=4, return_state=True)
    with pytest.raises(ValueError, match="state.codes: found shape .1, 2, 8., needed .1, 2, 16."):
        fovea.vq(q, k, v, codebook, block=8, state=state)
    with pytest.raises(ValueError, match="state.count: found element type int64, needed int32"):
        fovea.vq(q, k, v, codebook, block=4, state=state._replace(count=state.count.astype(np.int64)))
    with pytest.raises(ValueError, match="state.position: found -1, needed at least 0"):
        fovea.vq(q, k, v, codebook, block=4, state=state._replace(position=np.array(-1)))
    with pytest.raises(ValueError, match="q: found length 4, needed 1"):
        fovea.vq_decode(q, k, v, codebook, state, block=4)


def test_refuses_absurd_memories_of_the_first_state():
    q, k, v = make(N=1)
    with pytest.raises(ValueError, match="^block: found 8 with a memory of 2097152, needed"):
        fovea.vq_decode(q, k, v, make_codebook(2, 5, 16), block=8, memory=2**21)


def test_refuses_negative_counts(target):
    q, k, v = make(N=12)
    codebook = make_codebook(2, 5, 16)
    state = fovea.vq(q, k, v, codebook, block=4, return_state=True)[1]
    state.count[0, 1, 3] = -2
    message = r"count of state\[0, 1, 3\] must be at least 0 and below 2147483648, but got -2"
    kept = [part.copy() for part in state]
    token = [np.ascontiguousarray(x[:, :, :1]) for x in (q, k, v)]
    with pytest.raises(fovea.FoveaError, match="attn.vq: " + message):
        fovea.vq(q, k, v, codebook, block=4, state=state, target=target)
    with pytest.raises(fovea.FoveaError, match="attn.vq_decode: " + message):
        fovea.vq_decode(*token, codebook, state, block=4, target=target)
    with pytest.raises(fovea.FoveaError, match="attn.vq_backward: " + message):
        fovea.vq_backward(v, q, k, v, codebook, v, v[..., 0].copy(), block=4, state=state, target=target)
    assert all(np.array_equal(part, before) for part, before in zip(state, kept))


def test_refuses_codes_out_of_range(target):
    q, k, v = make(N=12)
    codes = np.zeros((1, 2, 12), np.int32)
    codes[0, 1, 9] = 5
    with pytest.raises(fovea.FoveaError, match=r"attn.vq: codes\[0, 1, 9\] must be at least 0 and below 5, but got 5"):
        fovea.vq(q, codes, v, make_codebook(2, 5, 16), block=4, target=target)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_values_that_a_bias_hides(type):
    """Of the last block, whose tokens are in no summary; its tiles take their bias from copies."""
    q, k, v = make(type, N=1300, D=64, E=64, H=2, G=2)
    codebook = make_codebook(2, 9, 64, type)
    bias = np.random.default_rng(4).standard_normal((1, 2, 1300, 1024)).astype(np.float32)
    hidden = np.array([1030, 1031, 1100])
    bias[:, :, :, hidden - 512] = -np.inf
    results = []
    for value in (0, np.inf, np.nan):
        v[:, :, hidden] = value
        results.append(fovea.vq(q, k, v, codebook, block=512, bias=bias))
    assert np.isfinite(results[0].astype(np.float32)).all()
    assert all(np.array_equal(results[0], each) for each in results[1:])
