# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense and fast multipole attention."""

import numpy as np

import fovea

from .case import softmax, spread, wide


def positions(N, M):
    """How far each key lies behind each query."""
    return np.arange(N)[:, None] + M - N - np.arange(M)


def sees(N, M, causal, window, prefix=None):
    distance = positions(N, M)
    admitted = np.ones((N, M), bool)
    if causal:
        admitted &= (distance >= 0) | (np.arange(M) < (prefix or 0))
    if window is not None:
        admitted &= np.abs(distance) < window
    return admitted


def dense_formula(q, k, v, scale, mask, log_weight=None, bias=None, sink=None):
    H, D = q.shape[1], q.shape[3]
    scores = (1 / np.sqrt(D) if scale is None else scale) * (q @ spread(k, H).swapaxes(2, 3))
    admitted = np.broadcast_to(mask, scores.shape)
    if log_weight is not None:
        term = spread(np.broadcast_to(log_weight, k.shape[:3]), H)[:, :, None]
        admitted = admitted & ~np.isneginf(term.real)
        scores = scores + np.where(np.isneginf(term.real), 0, term)
    if bias is not None:
        admitted = admitted & ~np.isneginf(bias.real)
        scores = scores + np.where(np.isneginf(bias.real), 0, bias)
    v = spread(v, H)
    if sink is not None:
        # An entry of each row that brings no value.
        one = (*scores.shape[:3], 1)
        scores = np.concatenate([scores, np.broadcast_to(np.asarray(sink)[..., None, None], one)], 3)
        admitted = np.concatenate([admitted, np.ones(one, bool)], 3)
        v = np.concatenate([v, np.zeros((*v.shape[:2], 1, v.shape[3]))], 2)
    weights, lse = softmax(scores, admitted)
    return [weights @ v, lse]


def drop(case, term):
    """Some entries of `term` become -inf."""
    term[case.random.random(term.shape) < case.pick("dropped", [0.0, 0.1, 0.6])] = -np.inf
    return term


def dense(case):
    B, H, G = case.heads()
    N = case.length("N")
    M = N if case.flip("square") else case.length("M")
    D, E = case.width("D"), case.width("E")
    causal = case.flip("causal")
    window = case.pick("window", [None, None, 0, 1, 2, 9, 40, 1000])
    scale = case.pick("scale", [None, 0.5, -0.3, 0.0])
    size = case.pick("size", [1.0, 1.0, 30.0])
    arrays = {"q": case.normal(B, H, N, D, size=size), "k": case.normal(B, G, M, D), "v": case.normal(B, G, M, E)}
    if case.flip("log_weight", 0.3):
        arrays["log_weight"] = drop(case, case.normal(*case.leading((B, G, M)), dtype=case.state))
    if case.flip("bias", 0.3):
        arrays["bias"] = drop(case, case.normal(*case.leading((B, H, N, M)), dtype=case.state))
    options = {"causal": causal, "window": window, "scale": scale, "target": case.target}
    forward = lambda **x: fovea.dense(**x, **options, return_lse=True)  # noqa: E731
    out, lse = case.twice(lambda: forward(**arrays))
    mask = sees(N, M, causal, window)
    formula = lambda **x: dense_formula(**x, scale=scale, mask=mask)  # noqa: E731
    expected, expected_lse = formula(**{name: wide(array) for name, array in arrays.items()})
    # Scores of `size` are known to their own rounding only.
    factor = size * max(1, np.sqrt(D)) if size > 1 or abs(scale or 0) else 1
    case.close(out, expected, "out", factor=factor, size=np.abs(wide(arrays["v"])).max())
    precise = "f64" if case.type == "f64" else "f32"
    if precise == case.type:
        case.close(lse, expected_lse, "lse", factor=4 * factor, size=1)
    if size > 1:
        return
    d_out, d_lse = case.normal(*out.shape), case.normal(B, H, N, dtype=case.state)
    d_lse[np.isneginf(lse)] = 0
    terms = [name for name in ("log_weight", "bias") if name in arrays]
    backward = lambda d_out, out, lse, **x: fovea.dense_backward(  # noqa: E731
        d_out, x.pop("q"), x.pop("k"), x.pop("v"), out, lse, d_lse=d_lse, **x, **options
    )
    given = dict(arrays, d_out=d_out, out=out, lse=lse)
    gradients = case.twice(lambda: backward(**given))
    found = dict(zip(["q", "k", "v", *terms], gradients))
    total = {name: np.where(np.isneginf(wide(array)), 0, 1) for name, array in arrays.items() if name in terms}
    for name, kept in total.items():
        case.require((np.asarray(found[name])[kept == 0] == 0).all(), f"gradient of {name} at -inf")
    safe = lambda **x: [np.where(np.isneginf(r.real), 0, r) for r in formula(**x)]  # noqa: E731
    case.gradients(safe, arrays, [d_out, d_lse], found, factor=np.sqrt(max(D, E, 16) / 16))
    hidden_entries(case, forward, backward, arrays, given, (out, lse), gradients, mask)


def hidden_entries(case, forward, backward, arrays, given, clean, gradients, mask):
    """NaNs and infinities in keys and values reach the rows that read them alone, and
    those in rows only the keys that are read."""
    B, H, N, _ = arrays["q"].shape
    G, M = arrays["k"].shape[1:3]
    admitted = np.broadcast_to(mask, (B, H, N, M)).copy()
    for name, heads in (("log_weight", G), ("bias", H)):
        if name in arrays:
            term = np.isneginf(wide(arrays[name]))
            term = term[:, :, None] if name == "log_weight" else term
            term = np.broadcast_to(term, (B, heads, *((1, M) if name == "log_weight" else (N, M))))
            admitted &= ~spread(term, H)
    b, g, j = (int(case.random.integers(n)) for n in (B, G, M))
    name = case.pick("dirty", ["k", "v", "q", "d_out"])
    if name in ("k", "v"):
        group = np.arange(H) // (H // G) == g
        reads = np.zeros((B, H, N), bool)
        reads[b] = admitted[b, :, :, j] & group[:, None]
        rows = ~reads
        index = (b, g, j, int(case.random.integers(arrays[name].shape[3])))
        case.hidden(forward, arrays, clean, (name, index), [rows[..., None], rows], "forward")
        d_q = rows[..., None]
        # Keys that share a row with the dirty one see it, through its weight and its sum.
        shared = np.any((admitted & reads[..., None]).reshape(B, G, H // G * N, M), axis=2)
        shared[b, g, j] = True
        keys = ~shared[..., None]
        dirty = dict(given, **{name: given[name].copy()})
        dirty[name][index] = np.nan
        dirty["out"], dirty["lse"] = (np.array(x) for x in forward(**{n: dirty[n] for n in arrays}))
        after = backward(**dirty)
        for what, before, found, keep in zip("qkv", gradients, after, (d_q, keys, keys)):
            keep = np.broadcast_to(case.unread(keep), found.shape)
            differs = (np.asarray(before) != np.asarray(found)) & keep
            case.require(not differs.any(), f"backward: NaN in {name}{list(index)} changes {differs.sum()} of d_{what}")
        return
    h, i = int(case.random.integers(H)), int(case.random.integers(N))
    index = (b, h, i, int(case.random.integers(given[name].shape[3])))
    rows = np.ones((B, H, N, 1), bool)
    rows[b, h, i] = False
    keys = np.ones((B, G, M, 1), bool)
    keys[b, h // (H // G), admitted[b, h, i]] = False
    case.hidden(backward, given, gradients[:3], (name, index), [rows, keys, keys], "backward")


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
    """Weighted sums of the intervals of `size` rows of x [B,G,N,D]."""
    B, G, N, D = x.shape
    groups = -(-N // size)
    padded = np.zeros((B, G, groups * size, D), x.dtype)
    padded[:, :, :N] = x
    rows = np.einsum("wptd,bxgtd->bxgpd" if weights.shape[0] == 1 else "xptd,bxgtd->bxgpd",
                     weights, padded.reshape(B, G, groups, size, D))
    if biases is not None:
        rows = rows + biases[None, :, None]
    return rows.reshape(B, G, -1, D)


def present(N, size, p):
    """How many of the tokens that each summary stands for there are."""
    each = size // p
    first = np.arange(-(-N // size) * p) * each
    return np.clip(N - first, 0, each)


def entries(N, m, p, L, causal):
    """For each level, which rows read which of its keys."""
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


def multipole_formula(q, k, v, m, p, L, read, scale, multiplicity, **rest):
    H, N, D = q.shape[1], q.shape[2], q.shape[3]
    keys, values, admitted, logs = [k], [v], [read[0]], [np.zeros(N)]
    for level in range(1, L + 1):
        size = m * 2 ** (level - 1)
        at = level - 1
        keys.append(summaries(k, rest[f"key_weights{at}"], rest.get(f"key_biases{at}"), size))
        values.append(summaries(v, rest[f"value_weights{at}"], rest.get(f"value_biases{at}"), size))
        count = present(N, size, p)
        admitted.append(read[level] & (count > 0))
        logs.append(np.log(np.maximum(count, 1)) * multiplicity)
    scale = 1 / np.sqrt(D) if scale is None else scale
    scores = scale * (q @ spread(np.concatenate(keys, 2), H).swapaxes(2, 3)) + np.concatenate(logs)
    mask = np.broadcast_to(np.concatenate(admitted, 1), scores.shape)
    weights, lse = softmax(scores, mask)
    return [weights @ spread(np.concatenate(values, 2), H), lse]


def linear_formula(q, k, v, m, p, L, read, scale, **rest):
    H, N, D = q.shape[1], q.shape[2], q.shape[3]
    scale = 1 / np.sqrt(D) if scale is None else scale
    scores = scale * (q @ spread(k, H).swapaxes(2, 3))
    out = softmax(scores, np.broadcast_to(read[0], scores.shape))[0] @ spread(v, H)
    for level in range(1, L + 1):
        size, at = m * 2 ** (level - 1), level - 1
        query, key, value = (
            summaries(x, rest[f"{n}_weights{at}"], rest.get(f"{n}_biases{at}"), size)
            for n, x in (("query", q), ("key", k), ("value", v))
        )
        count = present(N, size, p)
        query = query[:, :, np.arange(N) * p // size]
        scores = scale * (query @ spread(key, H).swapaxes(2, 3)) + np.log(np.maximum(count, 1))
        mask = np.broadcast_to(read[level] & (count > 0), scores.shape)
        out = out + softmax(scores, mask)[0] @ spread(value, H)
    return [out]


def draw_multipole(case, names):
    B, H, G = case.heads()
    m = case.pick("m", [1, 2, 4, 6, 8, 16])
    p = case.pick("p", [n for n in (1, 2, 4) if m % n == 0])
    N = min(case.length("N"), 16 * m)
    D, E = case.width("D", 33), case.width("E", 33)
    L = case.note(L=levels(N, m))
    arrays = {"q": case.normal(B, H, N, D), "k": case.normal(B, G, N, D), "v": case.normal(B, G, N, E)}
    lists: dict[str, list] = {f"{name}_weights": [] for name in names}
    with_biases = case.flip("biases", 0.4)
    if with_biases:
        lists |= {f"{name}_biases": [] for name in names}
    for name in names:
        heads, width = (H if name == "query" else G), (E if name == "value" else D)
        W = case.pick("W", [1, heads])
        for level in range(L):
            size = m * 2**level
            lists[f"{name}_weights"].append(case.normal(W, p, size, width, size=size**-0.5))
            if with_biases:
                lists[f"{name}_biases"].append(case.normal(W, p, width, size=0.2))
    flat = dict(arrays)
    for name, entries_ in lists.items():
        flat |= {f"{name}{at}": array for at, array in enumerate(entries_)}
    return arrays, lists, flat, (m, p, L, N)


def lists_of(flat, lists):
    return {name: [flat[f"{name}{at}"] for at in range(len(known))] for name, known in lists.items()}


def named(gradients, lists):
    """Gradients by the names of `flat`."""
    found = dict(zip("qkv", gradients))
    for name, part in zip(lists, gradients[3:]):
        found |= {f"{name}{at}": array for at, array in enumerate(part)}
    return found


def multipole(case):
    arrays, lists, flat, (m, p, L, N) = draw_multipole(case, ("key", "value"))
    causal, multiplicity = case.flip("causal"), case.flip("multiplicity", 0.8)
    scale = case.pick("scale", [None, 0.4])
    options = {"group": m, "causal": causal, "multiplicity": multiplicity, "scale": scale, "target": case.target}

    def forward(**x):
        return fovea.fast_multipole(x["q"], x["k"], x["v"], **lists_of(x, lists), **options, return_lse=True)

    out, lse = case.twice(lambda: forward(**flat))
    read = entries(N, m, p, L, causal)
    formula = lambda **x: multipole_formula(  # noqa: E731
        **x, m=m, p=p, L=L, read=read, scale=scale, multiplicity=multiplicity
    )
    expected, expected_lse = formula(**{name: wide(array) for name, array in flat.items()})
    size = np.abs(wide(arrays["v"])).max()
    # Summaries are rounded to the type once.
    narrow = 3 if case.type in ("bf16", "f16") else 2
    case.close(out, expected, "out", factor=narrow, size=size)
    d_out, d_lse = case.normal(*out.shape), case.normal(*lse.shape, dtype=case.state)
    order = ["key_weights", "value_weights"] + ["key_biases", "value_biases"] * ("key_biases" in lists)
    gradients = case.twice(
        lambda: fovea.fast_multipole_backward(
            d_out, arrays["q"], arrays["k"], arrays["v"], lists["key_weights"], lists["value_weights"], out, lse,
            d_lse=d_lse, key_biases=lists.get("key_biases"), value_biases=lists.get("value_biases"), **options,
        )
    )  # fmt: skip
    found = named(gradients, {name: lists[name] for name in order})
    case.gradients(formula, flat, [d_out, d_lse], found, factor=4)
    if causal and N > 1:
        j = int(case.random.integers(1, N))
        rows = np.broadcast_to((np.arange(N) < j)[:, None], out.shape)
        name = case.pick("dirty", ["k", "v"])
        index = (0, 0, j, int(case.random.integers(arrays[name].shape[3])))
        case.hidden(forward, flat, (out, lse), (name, index), [rows, rows[..., 0]], "forward")


def multipole_linear(case):
    arrays, lists, flat, (m, p, L, N) = draw_multipole(case, ("query", "key", "value"))
    causal = case.flip("causal", 0.3)
    options = {"group": m, "causal": causal, "allow_query_lookahead": causal, "target": case.target}

    def forward(**x):
        return fovea.fast_multipole_linear(x["q"], x["k"], x["v"], **lists_of(x, lists), **options)

    out = case.twice(lambda: forward(**flat))
    read = entries(N, m, p, L, causal)
    formula = lambda **x: linear_formula(**x, m=m, p=p, L=L, read=read, scale=None)  # noqa: E731
    (expected,) = formula(**{name: wide(array) for name, array in flat.items()})
    narrow = 3 if case.type in ("bf16", "f16") else 2
    case.close(out, expected, "out", factor=narrow * (1 + L), size=np.abs(wide(arrays["v"])).max())
    d_out = case.normal(*out.shape)
    biases = {name: lists[name] for name in lists if name.endswith("biases")}
    gradients = case.twice(
        lambda: fovea.fast_multipole_linear_backward(
            d_out, arrays["q"], arrays["k"], arrays["v"], lists["query_weights"], lists["key_weights"], lists["value_weights"],
            **biases, **options,
        )
    )  # fmt: skip
    case.gradients(formula, flat, [d_out], named(gradients, lists), factor=4)
