# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages of patterns: the code of each, arrays for it, and a formula.

Formulas take NumPy or PyTorch as `xp`, so that one of the two differentiates them, and know nothing of
how the package computes: a matrix of how often queries read rows stands for masks, ranges and lists.
"""

import pathlib
import re

import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "patterns"
B, H, G, N, D = 2, 4, 2, 141, 16
UNIT, COUNT, WINDOW = 16, 3, 24


def read_pages():
    pages = {path.stem: path.read_text() for path in FOLDER.glob("*.md") if path.stem != "README"}
    return {name: "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)) for name, text in pages.items()}


CODE = read_pages()


def choose_random(rng):
    """For each block of queries two blocks that are neither the first, nor its own, nor beside it."""
    last = -(-N // UNIT)
    lists = np.full((1, 1, last, 2), -1)
    for block in range(1, last):
        lists[0, 0, block] = rng.choice([each for each in range(1, last) if abs(each - block) > 1], 2, replace=False)
    return lists


def make_given():
    """Arrays by the names of the pages, in float64, and numbers."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape)

    arrays = {
        "q": normal(B, H, N, D), "k": normal(B, G, N, D), "v": normal(B, G, N, D), "sinks": normal(H),
        "documents": rng.integers(0, 3, (B, N)), "relative_attention_bias": normal(32, H), "random_blocks": choose_random(rng),
        "compressed": normal(B, G, N, D), "gate": normal(B, G, N, D), "places": normal(128, D),
        "gate_k": normal(B, G, N, D), "gate_v": normal(B, G, N, D), "gates": rng.random((3, B, H, N, 1)),
    }  # fmt: skip
    # Of the choices, which have no gradient.
    narrow = {
        "deepseek-v4-csa": {"index_q": normal(B, 3, N, 8), "index_k": normal(B, 1, N // 4, 8), "index_weight": normal(B, 3, N, 1)},
        "minimax": {"index_q": normal(B, G, N, 8), "index_k": normal(B, 1, N, 8)},
    }
    return arrays, narrow


ARRAYS, INDEXERS = make_given()
NUMBERS = {"B": B, "H": H, "G": G, "N": N, "D": D, "unit": UNIT, "count": COUNT, "window": WINDOW}
i, j = np.arange(N)[:, None], np.arange(N)


def attend(xp, q, k, v, counts, change=None, sink=None):
    """Soft-max over rows, each as often as `counts` says, [..,N,M]; those of key heads serve their query heads."""
    group = q.shape[1] // k.shape[1]
    wide = q.reshape(B, -1, group, N, D)
    scores = (wide @ k[:, :, None].swapaxes(3, 4)).reshape(B, H, N, -1) / D**0.5
    weights = xp.exp(scores if change is None else change(scores)) * xp.asarray(np.array(np.broadcast_to(counts, scores.shape)))
    total = weights.sum(-1)[..., None]
    if sink is not None:
        total = total + xp.exp(sink)[:, None, None]
    parts = (weights / xp.where(total == 0, 1.0, total)).reshape(B, -1, group, N, weights.shape[-1])
    return (parts @ v[:, :, None]).reshape(B, H, N, D)


def pool(xp, x, gate, interval, overlap=0, places=None):
    """Interval by interval."""
    rows = []
    for end in range(interval, x.shape[2] + 1, interval):
        begin = max(end - interval - overlap, 0)
        s = gate[:, :, begin:end]
        s = s if places is None else s + places[np.arange(begin, end) % interval]
        w = xp.exp(s)
        rows.append((w * x[:, :, begin:end]).sum(2) / w.sum(2))
    return xp.stack(rows, 2)


def to_numpy(array):
    return array if isinstance(array, np.ndarray) else array.detach().numpy()


def best(scores, counts):
    """1 where a row is among those with the largest scores of a query, `counts` many."""
    rank = np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1)
    return (rank < counts) & (scores > -np.inf)


def choose_blocks(scores):
    """How often tokens are read: those of a query's block, and of the best earlier ones."""
    earlier = np.arange(N // UNIT) < i // UNIT
    chosen = best(np.where(earlier, scores, -np.inf), COUNT)
    chosen = np.concatenate([chosen, np.zeros((*chosen.shape[:3], 1), bool)], -1)
    return (chosen[..., j // UNIT] | (i // UNIT == j // UNIT)) & (j <= i)


def of_query_heads(counts):
    return np.repeat(counts, H // counts.shape[1], axis=1)


def t5_bucket(distance):
    """As transformers counts, in whole numbers."""
    far = [8, 12, 16, 23, 32, 46, 64, 91]
    near = np.abs(distance)
    return (distance > 0) * 16 + np.where(near < 8, near, 7 + np.searchsorted(far, near, side="right"))


def alibi(xp, a):
    slopes = 2.0 ** -np.arange(2, 10, 2)[:, None, None]
    return attend(xp, a["q"], a["k"], a["v"], j <= i, lambda s: s + xp.asarray(slopes * (j - i)))


def t5(xp, a):
    table = a["relative_attention_bias"][t5_bucket(j - i)]
    return attend(xp, a["q"], a["k"], a["v"], 1.0, lambda s: 4 * s + xp.moveaxis(table, 2, 0))


def longformer(xp, a):
    g = 16
    return attend(xp, a["q"], a["k"], a["v"], (i < g) | (j < g) | (np.abs(i - j) < 32))


def bigbird(xp, a):
    of = i // UNIT, j // UNIT
    random = (ARRAYS["random_blocks"][0, 0][:, :, None] == j // UNIT).any(axis=1)[i[:, 0] // UNIT]
    return attend(xp, a["q"], a["k"], a["v"], (of[0] == 0) | (of[1] == 0) | (np.abs(of[0] - of[1]) < 2) | random)


def hca(xp, a):
    summaries = pool(xp, a["compressed"], a["gate"], 128, places=a["places"])
    counts = np.concatenate([(j <= i) & (i - j < 128), (np.arange(summaries.shape[2]) + 1) * 128 - 1 <= i], axis=1)
    rows = xp.concatenate([a["k"], summaries], 2)
    return attend(xp, a["q"], rows, rows, counts, sink=a["sinks"])


def csa(xp, a):
    summaries = pool(xp, a["compressed"], a["gate"], 4, overlap=4)
    index = {name: to_numpy(a[name]) for name in ("index_q", "index_k", "index_weight")}
    products = np.einsum("bhnd,bed->bhne", index["index_q"], index["index_k"][:, 0])
    scores = (index["index_weight"] * np.maximum(products, 0)).sum(axis=1, keepdims=True)
    whole = (np.arange(N // 4) + 1) * 4 - 1 <= i
    chosen = best(np.where(whole, scores, -np.inf), COUNT)
    counts = np.concatenate([np.broadcast_to((j <= i) & (i - j < 128), (B, 1, N, N)), chosen], axis=-1)
    rows = xp.concatenate([a["k"], summaries], 2)
    return attend(xp, a["q"], rows, rows, counts, sink=a["sinks"])


def moba(xp, a):
    means = to_numpy(a["k"])[:, :, : N // UNIT * UNIT].reshape(B, G, -1, UNIT, D).mean(axis=3)
    scores = np.einsum("bhnd,bhed->bhne", to_numpy(a["q"]), np.repeat(means, H // G, axis=1))
    return attend(xp, a["q"], a["k"], a["v"], choose_blocks(scores))


def minimax(xp, a):
    products = np.einsum("bgnd,bmd->bgnm", to_numpy(a["index_q"]), to_numpy(a["index_k"])[:, 0])
    blocks = range(UNIT, N + 1, UNIT)
    scores = np.stack([products[..., end - UNIT : end].max(axis=-1) for end in blocks], axis=-1)
    return attend(xp, a["q"], a["k"], a["v"], of_query_heads(choose_blocks(scores)))


def nsa(xp, a):
    ck, cv = pool(xp, a["k"], a["gate_k"], UNIT), pool(xp, a["v"], a["gate_v"], UNIT)
    whole = (np.arange(N // UNIT) + 1) * UNIT - 1 <= i
    far = attend(xp, a["q"], ck, cv, whole)
    grouped = to_numpy(a["q"]).reshape(B, G, H // G, N, D)
    powers = np.exp(np.einsum("bghnd,bged->bghne", grouped, to_numpy(ck)) / np.sqrt(D)) * whole
    total = powers.sum(axis=-1, keepdims=True)
    counts = choose_blocks((powers / np.where(total == 0, 1, total)).sum(axis=2))
    chosen = attend(xp, a["q"], a["k"], a["v"], of_query_heads(counts))
    near = attend(xp, a["q"], a["k"], a["v"], (j <= i) & (i - j < WINDOW))
    return a["gates"][0] * far + a["gates"][1] * chosen + a["gates"][2] * near


def documents(xp, a):
    same = ARRAYS["documents"][:, None, :, None] == ARRAYS["documents"][:, None, None]
    return attend(xp, a["q"], a["k"], a["v"], same & (j <= i))


FORMULAS = {
    "alibi": alibi,
    "bigbird": bigbird,
    "deepseek-v4-csa": csa,
    "deepseek-v4-hca": hca,
    "documents": documents,
    "gemma-2": lambda xp, a: attend(xp, a["q"], a["k"], a["v"], (j <= i) & (i - j < 4096), lambda s: 50 * xp.tanh(s / 50)),
    "gpt-oss": lambda xp, a: attend(xp, a["q"], a["k"], a["v"], (j <= i) & (i - j < 128), sink=a["sinks"]),
    "longformer": longformer,
    "minimax": minimax,
    "moba": moba,
    "nsa": nsa,
    "streaming-llm": lambda xp, a: attend(xp, a["q"], a["k"], a["v"], (j <= i) & ((i - j < 64) | (j < 4))),
    "t5": t5,
}


def run(name, fovea, np, arrays):
    """`out` of the code of a page, with these modules."""
    found = {"fovea": fovea, "np": np, **NUMBERS, **arrays}
    exec(CODE[name], found)
    return found["out"]
