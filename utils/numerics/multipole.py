# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention: both forms, and token by token."""

import dataclasses
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np

import fovea

from .case import softmax, spread, wide
from .tokens import Tokens, draw_tokens

#: What summaries are made by: sums of each column, sums of all columns, or the caller.
FORMS = ["columns", "columns", "mixing", "given"]


class Sizes(NamedTuple):
    """Tokens of a group, summaries of an interval, levels and tokens."""

    m: int
    p: int
    L: int
    N: int


def levels(N, m):
    """The least L with N <= m 2^(L+1)."""
    count = 0
    while N > m * 2 ** (count + 1):
        count += 1
    return count


def owner(i, j, m, L):
    """The level that owns an entry."""
    if abs(i // m - j // m) <= 1:
        return 0
    for level in range(1, L):
        size = m * 2 ** (level - 1)
        if abs(i // size - j // size) >= 2 and abs(i // (2 * size) - j // (2 * size)) <= 1:
            return level
    return L


def summaries(x, weights, biases, size):
    """Weighted sums [B,G,intervals,p,D] of the intervals of `size` rows of x [B,G,N,D]."""
    B, G, N, D = x.shape
    groups = -(-N // size)
    padded = np.zeros((B, G, groups * size, D), x.dtype)
    padded[:, :, :N] = x
    weights = np.repeat(weights, G // weights.shape[0], axis=0)
    columns = "xptdc,bxgtd->bxgpc" if weights.ndim == 5 else "xptd,bxgtd->bxgpd"
    rows = np.einsum(columns, weights, padded.reshape(B, G, groups, size, D))
    if biases is not None:
        rows = rows + np.repeat(biases, G // biases.shape[0], axis=0)[None, :, None]
    return rows


def count_present(here, size, p):
    """How many of the tokens that each summary stands for there are, [B,intervals * p]."""
    B, N = here.shape
    intervals = -(-N // size)
    padded = np.zeros((B, intervals * size), int)
    padded[:, :N] = here
    return padded.reshape(B, intervals * p, size // p).sum(2)


def entries(sizes, causal):
    """For each level, which rows read which of its keys."""
    m, p, L, N = sizes
    found = [np.zeros((N, N), bool)]
    found += [np.zeros((N, -(-N // (m * 2 ** (level - 1))) * p), bool) for level in range(1, L + 1)]
    for i in range(N):
        for j in range(i + 1 if causal else N):
            level = owner(i, j, m, L)
            if level == 0:
                found[0][i, j] = True
            else:
                size = m * 2 ** (level - 1)
                first = j // size * p
                found[level][i, first : first + p] = True
    return found


@dataclasses.dataclass
class Summaries:
    """Those of `names`, queries, keys or values: `lists` of weights and biases, or of ready-made ones."""

    sizes: Sizes
    names: tuple[str, ...]
    lists: dict[str, list]

    @property
    def flat(self):
        return {f"{name}{at}": array for name, part in self.lists.items() for at, array in enumerate(part)}

    def given(self, flat) -> Any:
        """The lists as arguments of a call, of arrays by name."""
        return {name: [flat[f"{name}{at}"] for at in range(len(part))] for name, part in self.lists.items()}

    def named(self, gradients):
        """What a call returns behind the gradients of q, k and v, by the names of `flat`."""
        order = [f"{name}_{what}" for what in ("weights", "biases", "summaries") for name in self.names]
        found: dict[str, np.ndarray] = {}
        for name, part in zip([name for name in order if name in self.lists], gradients, strict=True):
            found |= {f"{name}{at}": array for at, array in enumerate(part)}
        return found

    def of(self, name, x, flat, level):
        """Those of a level [B,heads,intervals * p,D], of x whose absent rows are zeros."""
        at = level - 1
        rows = flat.get(f"{name}_summaries{at}")
        if rows is None:
            size = self.sizes.m * 2**at
            rows = summaries(x, flat[f"{name}_weights{at}"], flat.get(f"{name}_biases{at}"), size)
        return rows.reshape(*rows.shape[:2], -1, rows.shape[-1])


def draw_summaries(case, names, forms, arrays, sizes):
    form = case.pick("form", forms)
    biases = form != "given" and case.flip("biases", 0.4)
    lists: dict[str, list] = {}
    for name in names:
        B, heads, _, width = arrays[name[0]].shape
        W = case.pick(f"W_{name}", [n for n in range(1, heads + 1) if heads % n == 0])
        intervals = [sizes.m * 2**level for level in range(sizes.L)]
        if form == "given":
            shapes = [(B, heads, -(-sizes.N // size), sizes.p, width) for size in intervals]
            lists[f"{name}_summaries"] = [case.normal(*shape) for shape in shapes]
            continue
        mixed = (width,) * (form == "mixing")
        lists[f"{name}_weights"] = [
            case.normal(W, sizes.p, size, width, *mixed, size=(size * (width if mixed else 1)) ** -0.5) for size in intervals
        ]
        if biases:
            lists[f"{name}_biases"] = [case.normal(W, sizes.p, width, size=0.2) for _ in intervals]
    return Summaries(sizes, names, lists)


def multipole_formula(q, k, v, *, of, tokens, read, scale, multiplicity, **flat):
    m, p, L, N = of.sizes
    H, D = q.shape[1], q.shape[3]
    k, v = tokens.clear(k), tokens.clear(v)
    rows = tokens.here[:, None, :, None]
    keys, values, admitted, logs = [k], [v], [read[0] & tokens.here[:, None]], [np.zeros(tokens.here.shape)]
    for level in range(1, L + 1):
        keys.append(of.of("key", k, flat, level))
        values.append(of.of("value", v, flat, level))
        count = count_present(tokens.here, m * 2 ** (level - 1), p)
        admitted.append(read[level] & (count > 0)[:, None])
        logs.append(np.log(np.maximum(count, 1)) * multiplicity)
    scale = 1 / np.sqrt(D) if scale is None else scale
    scores = scale * (q @ spread(np.concatenate(keys, 2), H).swapaxes(2, 3))
    scores = scores + np.concatenate(logs, 1)[:, None, None]
    mask = np.broadcast_to(np.concatenate(admitted, 2)[:, None], scores.shape) & rows
    weights, lse = softmax(scores, mask)
    return [weights @ spread(np.concatenate(values, 2), H), lse]


def linear_formula(q, k, v, *, of, tokens, read, scale, **flat):
    m, p, L, N = of.sizes
    H, D = q.shape[1], q.shape[3]
    scale = 1 / np.sqrt(D) if scale is None else scale
    q, k, v = tokens.clear(q), tokens.clear(k), tokens.clear(v)
    rows = tokens.here[:, None, :, None]
    scores = scale * (q @ spread(k, H).swapaxes(2, 3))
    mask = np.broadcast_to((read[0] & tokens.here[:, None])[:, None], scores.shape) & rows
    out = softmax(scores, mask)[0] @ spread(v, H)
    for level in range(1, L + 1):
        size = m * 2 ** (level - 1)
        query, key, value = (of.of(name, x, flat, level) for name, x in (("query", q), ("key", k), ("value", v)))
        count = count_present(tokens.here, size, p)
        query = query[:, :, np.arange(N) * p // size]
        scores = scale * (query @ spread(key, H).swapaxes(2, 3)) + np.log(np.maximum(count, 1))[:, None, None]
        mask = np.broadcast_to((read[level] & (count > 0)[:, None])[:, None], scores.shape) & rows
        out = out + softmax(scores, mask)[0] @ spread(value, H)
    return [out]


def draw(case, names, forms):
    """Arrays by name, how summaries are made, and which tokens there are."""
    B, H, G = case.heads()
    m = case.pick("m", [1, 2, 4, 6, 8, 16])
    p = case.pick("p", [n for n in (1, 2, 4) if m % n == 0])
    N = min(case.length("N"), 16 * m)
    D, E = case.width("D", 33), case.width("E", 33)
    sizes = Sizes(m, p, case.note(L=levels(N, m)), N)
    arrays = {"q": case.normal(B, H, N, D), "k": case.normal(B, G, N, D), "v": case.normal(B, G, N, E)}
    return arrays, draw_summaries(case, names, forms, arrays, sizes), draw_tokens(case, B, N)


def largest_value(flat):
    return max(np.abs(wide(array)).max() for name, array in flat.items() if name == "v" or name.startswith("value_summaries"))


def narrow(case):
    """Summaries are rounded to the type once."""
    return 3 if case.type in ("bf16", "f16") else 2


def multipole(case):
    arrays, of, tokens = draw(case, ("key", "value"), FORMS)
    N, flat = of.sizes.N, arrays | of.flat
    causal, multiplicity = case.flip("causal"), case.flip("multiplicity", 0.8)
    scale = case.pick("scale", [None, 0.4])
    options = {"group": of.sizes.m, "causal": causal, "multiplicity": multiplicity, "scale": scale, "target": case.target}
    options |= tokens.options

    def forward(q, k, v, **x):
        return fovea.fast_multipole(q, k, v, **of.given(x), **options, return_lse=True)

    out, lse = case.twice(lambda: forward(**flat))
    read = entries(of.sizes, causal)
    formula = lambda **x: multipole_formula(  # noqa: E731
        **x, of=of, tokens=tokens, read=read, scale=scale, multiplicity=multiplicity
    )
    expected, expected_lse = formula(**{name: wide(array) for name, array in flat.items()})
    size = largest_value(flat)
    case.close(out, expected, "out", factor=narrow(case), size=size)
    if case.type in ("f32", "f64"):
        case.close(lse, expected_lse, "lse", factor=16, size=4)
    d_out, d_lse = case.normal(*out.shape), case.normal(*lse.shape, dtype=case.state)
    d_lse[np.isneginf(lse)] = 0
    more = of.given(flat)
    more = {"key_weights": None, "value_weights": None, **more, **arrays, **options}
    gradient = fovea.fast_multipole_backward

    gradients = case.twice(lambda: gradient(d_out, out=out, lse=lse, d_lse=d_lse, **more))
    found = dict(zip("qkv", gradients)) | of.named(gradients[3:])
    safe = lambda **x: [np.where(np.isneginf(r.real), 0, r) for r in formula(**x)]  # noqa: E731
    case.gradients(safe, flat, [d_out, d_lse], found, factor=4)
    tokens.hide(case, forward, flat, (out, lse), "qkv")
    if causal and N > 1 and tokens.here.all():
        j = int(case.random.integers(1, N))
        rows = np.broadcast_to((np.arange(N) < j)[:, None], out.shape)
        name = case.pick("dirty", ["k", "v"])
        index = (0, 0, j, int(case.random.integers(arrays[name].shape[3])))
        case.hidden(forward, flat, (out, lse), (name, index), [rows, rows[..., 0]], "forward")


def linear(case):
    arrays, of, tokens = draw(case, ("query", "key", "value"), FORMS)
    flat = arrays | of.flat
    causal = case.flip("causal", 0.3)
    options = {"group": of.sizes.m, "causal": causal, "allow_query_lookahead": causal, "target": case.target}
    options |= tokens.options

    def forward(q, k, v, **x):
        return fovea.fast_multipole_linear(q, k, v, **of.given(x), **options)

    out = case.twice(lambda: forward(**flat))
    read = entries(of.sizes, causal)
    formula = lambda **x: linear_formula(**x, of=of, tokens=tokens, read=read, scale=None)  # noqa: E731
    (expected,) = formula(**{name: wide(array) for name, array in flat.items()})
    size = largest_value(flat)
    case.close(out, expected, "out", factor=narrow(case) * (1 + of.sizes.L), size=size)
    d_out = case.normal(*out.shape)

    def backward():
        q, k, v = (arrays[name] for name in "qkv")
        return fovea.fast_multipole_linear_backward(d_out, q, k, v, **of.given(flat), **options)

    gradients = case.twice(backward)
    found = dict(zip("qkv", gradients)) | of.named(gradients[3:])
    case.gradients(formula, flat, [d_out], found, factor=4)
    tokens.hide(case, forward, flat, out, "qkv")


# ----------------------------------------------------------------------------
# Token by token
# ----------------------------------------------------------------------------


def decode(case):
    """The last row of the whole, of caches and of their forks."""
    case.target = case.note(target="cpu")
    arrays, of, _ = draw(case, ("key", "value"), ["columns"])
    m, _, L, N = of.sizes
    if not L:
        return  # A cache has weights.
    B, G = arrays["k"].shape[:2]
    multiplicity, scale = case.flip("multiplicity", 0.8), case.pick("scale", [None, 0.4])
    given = of.given(of.flat)
    both = [given.pop(f"{name}_weights") for name in of.names]
    made = {"group": m, "heads": G, "batch": B, "scale": scale, "multiplicity": multiplicity, **given}
    cache = fovea.MultipoleCache(*both, **made)
    plain = {name: wide(array) for name, array in (arrays | of.flat).items()}
    at = 0
    fovea.set_num_threads(case.pick("threads", [1, 3]))
    while at < N:
        few = min(int(case.random.choice([1, 1, 1, 2, m, 3 * m + 1])), N - at)
        q = arrays["q"][:, :, at + few - 1 : at + few]
        k, v = (arrays[name][:, :, at : at + few] for name in "kv")
        if case.random.random() < 0.1:
            other = cache.fork()
            other.append(k[:, :, ::-1], v[:, :, ::-1])
        if case.random.random() < 0.1:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "cache")
                cache.save(path)
                cache = fovea.MultipoleCache.load(path, *both, **made)
        if few == 1 and case.random.random() < 0.5:
            out, lse = fovea.fast_multipole_decode(q, k, v, cache, return_lse=True)
        else:
            cache.append(k, v)
            out, lse = cache.attend(q, return_lse=True)
        at += few
        case.require(cache.length == at, f"{cache.length} tokens, needed {at}")
        prefix = {name: array[:, :, :at] if name in arrays else array for name, array in plain.items()}
        whole = dataclasses.replace(of, sizes=of.sizes._replace(L=levels(at, m), N=at))
        expected, sums = multipole_formula(
            **prefix, of=whole, tokens=Tokens(np.ones((B, at), bool)), read=entries(whole.sizes, True), scale=scale,
            multiplicity=multiplicity,
        )  # fmt: skip
        size = np.abs(plain["v"]).max()
        case.close(out, expected[:, :, -1:], f"out of {at} tokens", factor=narrow(case), size=size)
        if case.type in ("f32", "f64"):
            case.close(lse, sums[:, :, -1:], f"lse of {at} tokens", factor=16, size=4)
    fovea.set_num_threads(1)
