# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Short sequences cut at every token: attn.vq in two and in three windows, attn.vq_decode
from every state, and attn.vq_backward back through all of them, against the whole sequence in
NumPy. A kernel knows the length of its window, so that whatever depends on it is folded."""

import itertools

import numpy as np
from cases import BOUNDS, Checker, normal, state
from kernels import NAMES
from vq_cases import backward_module, codebook_type, decoder, drop_tokens, empty_state, expected, module, read_tokens, spoil_absent

check = Checker()

FACTORS = {
    "N": [5, 8],
    "block": [1, 2, 3, 4],
    "memory": [1, 1, 0, 2, 3],
    # B, H, G, and whether heads share the codebook.
    "heads": [(1, 2, 2, True), (1, 4, 2, False), (2, 2, 2, True), (2, 1, 1, True)],
    "reduction": ["auto", "serial", "matmul", "associative", "input_scan"],
    "weighting": ["softmax", "softmax", "squared_relu"],
    "bias": [None, "full"],
    "padded": [False, True],
    "wide": [False, True],
    # What the first window is given.
    "start": ["nothing", "zeros"],
    "dtype": check.types(),
}
SIZES = {"width": (3, 3), "codes": 3, "causal": True, "lse": True, "dynamic": False, "sums": True, "d_bias": True}


class Sequence:
    """A case's inputs, what they give as a whole, and kernels for windows of them."""

    def __init__(self, index, case):
        self.case = case = SIZES | case
        (D, E), (B, H, G, shared) = case["width"], case["heads"]
        N, S, dtype, rng = case["N"], case["codes"], case["dtype"], np.random.default_rng(index)
        self.rows = {"q": normal(rng, (B, H, N, D), dtype), "z": rng.integers(0, S, (B, G, N), np.int32),
                     "v": normal(rng, (B, G, N, E), dtype)}  # fmt: skip
        self.codebook = normal(rng, (1 if shared else G, S, D), codebook_type(case))
        if case["bias"]:
            self.rows["bias"] = normal(rng, (B, H, N, read_tokens(case)), dtype)
        self.d_rows = {"d_out": normal(rng, (B, H, N, E), dtype)}
        self.is_softmax = case["weighting"] == "softmax"
        if self.is_softmax:
            self.d_rows["d_lse"] = normal(rng, (B, H, N), state(dtype))
        if case["padded"]:
            drop_tokens(rng, self.rows["z"])
            spoil_absent(self.rows["z"], self.rows["q"], self.rows["v"], *self.d_rows.values())
        self.kernels = {}

    def expect(self):
        """The output, and the gradients of query, keys, values and bias."""
        q, z, v, bias = (self.rows.get(name) for name in ("q", "z", "v", "bias"))
        out = expected(self.case, q, z, v, self.codebook, bias)[0]
        options = {key: self.case[key] for key in ("block", "memory", "weighting", "padded")} | {"scale": 0.3, "bias": bias}
        gradients = check.reference.vq_backward(
            self.d_rows["d_out"], q, z, v, self.codebook, d_lse=self.d_rows.get("d_lse"), **options)  # fmt: skip
        return out, [gradient for gradient in gradients if gradient is not None]

    def kernel(self, key, make):
        if key not in self.kernels:
            self.kernels[key] = check.library.compile(make())
        return self.kernels[key]

    def cut(self, rows, low, high):
        """Arrays by name, in the order of arguments: the codebook follows the values."""
        parts = {name: np.ascontiguousarray(array[:, :, low:high]) for name, array in rows.items()}
        if "v" not in parts:
            return parts
        bias = {"bias": parts.pop("bias")} if "bias" in parts else {}
        return parts | {"c": self.codebook} | bias

    def window(self, low, high, before):
        """The results of the window, of which the last five are its state."""
        kernel = self.kernel((high - low, bool(before)),
                             lambda: module(self.case, high - low, bool(before), True, self.case["bias"]))  # fmt: skip
        return kernel(*self.cut(self.rows, low, high).values(), *before)

    def decode(self, token, before):
        kernel = self.kernel("decode", lambda: decoder(self.case, bool(self.case["bias"])))
        return kernel(*self.cut(self.rows, token, token + 1).values(), *before)

    def backward(self, low, high, before, found, d_next):
        """The gradients of the window, of which the last three are of `before`."""
        arrays = self.cut(self.rows, low, high) | dict(zip(("mean", "count", "kz", "kv", "position"), before))
        if self.is_softmax:
            arrays |= {"out": found[0], "lse": found[1]}
        arrays |= self.cut(self.d_rows, low, high) | dict(zip(("nm", "nk", "nv"), d_next))
        shapes = {name: array.shape for name, array in arrays.items()}
        kernel = self.kernel(("backward", high - low), lambda: backward_module(self.case, shapes)[0])
        return kernel(*arrays.values())

    def no_gradient(self):
        """Zero for the state that the last window leaves."""
        (D, _), mean = self.case["width"], empty_state(self.case)
        kept = mean[3].astype(NAMES[state(self.case["dtype"])])
        return [mean[0], np.zeros((*kept.shape[:3], D), kept.dtype), kept]


def check_state(sequence, parts, position, what):
    """Counts are exact, and tokens that are read one by one are there."""
    _, count, codes, values, found = parts
    z, v = sequence.rows["z"], sequence.rows["v"]
    block, S = sequence.case["block"], sequence.case["codes"]
    first = max(position // block - sequence.case["memory"], 0) * block
    counts = (z[:, :, :first, None] == np.arange(S)).sum(axis=2)
    check.require(found == position and (count == counts).all(), f"{what}: counts {count.tolist()}")
    tokens = np.arange(first, position)
    rows = tokens % read_tokens(sequence.case)
    same_values = (values[:, :, rows] == v[:, :, tokens]) | (z[:, :, tokens] < 0)[..., None]
    same = (codes[:, :, rows] == z[:, :, tokens]).all() and same_values.all()
    check.require(same, f"{what}: kept tokens")


def run(index, case):
    sequence = Sequence(index, case)
    N, dtype = case["N"], case["dtype"]
    out, gradients = sequence.expect()
    start = empty_state(sequence.case) if case["start"] == "zeros" else []
    cuts = [(0, *inner, N) for count in (1, 2) for inner in itertools.combinations(range(1, N), count)]
    # Every cut in two, and a third of those in three.
    cuts = cuts[index % min(check.part, N - 1) : N - 1 : check.part] + cuts[N - 1 + index % 3 :: 3 * check.part]
    for points in cuts:
        what = f"case {index} {case} cut at {points[1:-1]}"
        before, steps = start, []
        for low, high in itertools.pairwise(points):
            found = sequence.window(low, high, before)
            steps.append((low, high, before or empty_state(sequence.case), found))
            before = found[-5:]
            check_state(sequence, before, high, f"{what}, after {high}")
        check.close(np.concatenate([step[-1][0] for step in steps], axis=2), out, BOUNDS[dtype], what)
        d_next, parts = sequence.no_gradient(), []
        for step in reversed(steps):
            found = sequence.backward(*step, d_next)
            parts.insert(0, found[:-3])
            d_next = found[-3:]
        for name, joined, one in zip(("dq", "dk", "dv", "db"), zip(*parts), gradients, strict=False):
            check.close(np.concatenate(joined, axis=2), one, 3 * BOUNDS[dtype], f"{what}: {name}")
        # As a function of tensors, decoding is for the CPU.
        if len(points) == 3 and check.library.target == "cpu":
            decoded, after = [], steps[0][-1][-5:]
            for token in range(points[1], N):
                found, *after = sequence.decode(token, after)
                decoded.append(found)
                check_state(sequence, after, token + 1, f"{what}, decoded {token}")
            check.close(np.concatenate(decoded, axis=2), out[:, :, points[1] :], BOUNDS[dtype], f"{what}, decoded")


check.matrix(FACTORS, 6, run)
check.finish()
