# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Attention to keys in pages, by a table and from a cache, against each sequence in one piece."""

import numpy as np
import pytest
from conftest import TYPES, check, make, refused

import fovea
from fovea import reference

P, PAGE, B, H, D, E = 30, 8, 3, 4, 24, 20
LENGTHS = np.array([37, 0, 64], np.int32)


def own_layout(array, layout):
    return array if layout == "bhnd" else np.ascontiguousarray(array.swapaxes(1, 2))


def pool(type, G):
    """Pages, and a table whose rows go on behind their last page with numbers that name none."""
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((P, G, PAGE, width)).astype(TYPES[type]) for width in (D, E))
    table = rng.permutation(P)[:27].reshape(B, 9)
    for row, n in zip(table, LENGTHS):
        rest = row[-(-n // PAGE) :]
        rest[:] = [-1, 1000, 99999, -5, P, 7, -1, 0, 3][: len(rest)]
    return k, v, table


def in_one_piece(pages, table, b):
    """[1,G,M,D] of a sequence."""
    n = LENGTHS[b]
    rows = [pages[table[b, place // pages.shape[2]], :, place % pages.shape[2]] for place in range(n)]
    return np.stack(rows, 1)[None] if n else np.zeros((1, pages.shape[1], 0, pages.shape[3]), pages.dtype)


def compare(found, q, k, v, table, type, sink=None, layout="bhnd", **options):
    out, lse = found
    out = own_layout(out, layout)
    for b in range(B):
        rows = [in_one_piece(pages, table, b) for pages in (k, v)]
        of = {} if sink is None else {"sink": sink}
        check((out[b : b + 1], lse[b : b + 1]), reference.dense(q[b : b + 1], *rows, **options, **of, return_lse=True), type)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N", [1, 3, 40])
def test_paged(N, type, layout):
    state = np.float64 if type == "float64" else np.float32
    sink = np.linspace(-1, 1, H).astype(state)
    for G in (1, 2, 4):
        k, v, table = pool(type, G)
        q = make(type, B=B, H=H, N=N, D=D)[0]
        given = [own_layout(each, layout) for each in (q, k, v)]
        for options in ({"causal": True}, {"causal": False, "scale": 0.3}, {"causal": True, "window": 9, "sink": sink}):
            found = fovea.paged(*given, table, LENGTHS, **options, layout=layout, return_lse=True)
            compare(found, q, k, v, table, type, **options, layout=layout)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    "G, group, N, E",
    [
        *((3, 1, 1, 72), (19, 1, 2, 72), (11, 4, 2, 72), (5, 3, 3, 72), (18, 8, 1, 72)),
        *((9, 4, 1, 64), (9, 8, 1, 64), (9, 5, 3, 64), (9, 17, 1, 64)),
    ],
)
def test_many_heads(G, group, N, E, is_first, type):
    """Key heads that go through pages together, the last ones of a task fewer; keys in parts; rows of both kinds of kernels."""
    rng = np.random.default_rng(1)
    pages, page = 140, 16
    shape = (pages, page, G) if is_first else (pages, G, page)
    k, v = (rng.standard_normal((*shape, width)).astype(TYPES[type]) for width in (64, E))
    if is_first:
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    table = rng.permutation(pages).reshape(2, 70)
    lengths = np.array([1117, 13], np.int32)
    q = make(type, B=2, H=G * group, N=N, D=64)[0]
    for options in ({"causal": True}, {"causal": True, "window": 600}):
        found = [fovea.paged(q, k, v, table, lengths, **options, return_lse=True)]
        fovea.set_num_threads(1)
        found.append(fovea.paged(q, k, v, table, lengths, **options, return_lse=True))
        fovea.set_num_threads(0)
        for one, two in zip(*found):
            assert one.tobytes() == two.tobytes()
        for b, length in enumerate(lengths):
            own = [each[table[b]].swapaxes(0, 1).reshape(1, G, -1, each.shape[3])[:, :, :length] for each in (k, v)]
            expected = reference.dense(q[b : b + 1], *own, **options, return_lse=True)
            check(tuple(each[b : b + 1] for each in found[0]), expected, type)


@pytest.mark.parametrize("target", ["reference", "gpu-sim"])
def test_targets(target):
    k, v, table = pool("float32", 2)
    for N in (1, 21):
        q = make(B=B, H=H, N=N, D=D)[0]
        compare(fovea.paged(q, k, v, table, LENGTHS, return_lse=True, target=target), q, k, v, table, "float32", causal=True)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_tables_that_kernels_read(kind):
    k, v, table = pool("float32", 2)
    table, lengths = table.astype(kind), LENGTHS.astype(kind)
    q = make(B=B, H=H, N=3, D=D)[0]
    options = {"window": 30, "query_lengths": np.array([3, 1, 2], kind), "return_lse": True}
    found, expected = (fovea.paged(q, k, v, table, lengths, **options, target=target) for target in ("gpu-sim", "cpu"))
    for mine, want in zip(found, expected):
        assert np.allclose(mine, want, atol=1e-5)
    for place, page in (((2, 3), -1), ((0, 4), P), ((0, 0), 99999)):
        wrong = table.copy()
        wrong[place] = page
        match = rf"paged: block_table\[{place[0]}, 0, {place[1]}\] must be at least 0 and below {P}, but got {page}"
        refused(match, fovea.paged, q, k, v, wrong, lengths, target="gpu-sim", error=fovea.FoveaError)
    lengths[1] = 73
    match = "lengths: found 73" if kind is np.int32 else r"lengths of source 0\[0, 0, 1\] must be at least 0 and below 73, but got 73"
    refused(match, fovea.paged, q, k, v, table, lengths, target="gpu-sim", error=(ValueError, fovea.FoveaError))
    refused("must be", fovea.paged, q, k[:0], v[:0], table, LENGTHS, target="gpu-sim", error=fovea.FoveaError)
    assert not fovea.paged(q, k[:0], v[:0], table, 0 * LENGTHS, target="gpu-sim").any()


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_longest_sequences(target):
    """Rows of a table are read up to the pages of the longest sequence."""
    k, v, table = pool("float32", 2)
    q = make(B=B, H=H, N=3, D=D)[0]
    most = int(LENGTHS.max())
    expected = fovea.paged(q, k, v, table, LENGTHS)
    wide = np.concatenate([table, np.full_like(table, P)], axis=1)
    for kind in (np.int32, np.int64):
        found = fovea.paged(q, k, v, wide, LENGTHS.astype(kind), max_length=most, target=target)
        assert np.allclose(found, expected, atol=1e-5)
    refused("max_length: found -1", fovea.paged, q, k, v, table, LENGTHS, max_length=-1)
    refused("lengths", fovea.paged, q, k, v, table, LENGTHS, max_length=most - PAGE, target=target, error=(ValueError, fovea.FoveaError))


def test_pages_of_any_strides():
    """Keys and values in one array, pages of it, and single tokens."""
    q = make(B=B, H=H, N=2, D=D)[0]
    whole = np.random.default_rng(0).standard_normal((2 * P, 2, 2, PAGE, D)).astype(np.float32)
    table = pool("float32", 2)[2]
    for pages in (whole[:P], whole[::2], whole[P:]):
        k, v = pages[:, 0], pages[:, 1]
        compare(fovea.paged(q, k, v, table, LENGTHS, return_lse=True), q, k, v, table, "float32", causal=True)
    singles = np.random.default_rng(1).standard_normal((2, 200, 2, 1, D)).astype(np.float32)
    table = np.random.default_rng(2).permutation(200)[:192].reshape(B, 64)
    compare(fovea.paged(q, *singles, table, LENGTHS, return_lse=True), q, *singles, table, "float32", causal=True)


def test_others_may_hold_anything():
    k, v, table = pool("float32", 2)
    q = make(B=B, H=H, N=4, D=D)[0]
    expected = fovea.paged(q, k, v, table, LENGTHS)
    used = np.zeros((P, PAGE), bool)
    for b in range(B):
        for place in range(LENGTHS[b]):
            used[table[b, place // PAGE], place % PAGE] = True
    for pages in (k, v):
        pages.swapaxes(1, 2)[~used] = np.nan
    assert np.array_equal(fovea.paged(q, k, v, table, LENGTHS), expected) and np.isfinite(expected).all()


def test_a_wrong_page_is_noticed():
    k, v, table = pool("float32", 2)
    q = make(B=B, H=H, N=4, D=D)[0]
    wrong = table.copy()
    wrong[2, 1] = table[0, 0]
    with pytest.raises(AssertionError):
        compare(fovea.paged(q, k, v, wrong, LENGTHS, return_lse=True), q, k, v, table, "float32", causal=True)


def test_errors():
    k, v, table = pool("float32", 2)
    q = make(B=B, H=H, N=4, D=D)[0]

    def fails(match, *, q=q, k=k, v=v, table=table, lengths=LENGTHS, **options):
        refused(match, fovea.paged, q, k, v, table, lengths, **options)

    wrong = table.copy()
    wrong[2, 3] = -1
    match = r"^block_table: found -1 at \[2, 3\], needed a page from 0 to 29 for the 64 tokens of lengths\[2\]"
    fails(match, table=wrong, lengths=[0, 0, 64])
    wrong[2, 3] = 30
    fails(r"^block_table: found 30 at \[2, 3\]", table=wrong)
    fails(r"^lengths: found 73 for batch entry 1, needed 0 to 72", lengths=[0, 73, 0], table=np.zeros((B, 9), int))
    fails(r"^lengths: found -1 for batch entry 0", lengths=[-1, 0, 0])
    fails(r"^lengths: found shape \(2,\)", lengths=[1, 2])
    fails(r"^block_table: found element type float64, needed int32 or int64", table=table * 1.0)
    fails(r"^block_table: found shape \(9,\)", table=table[0])
    fails(r"^block_table: found batch 2, needed 3", table=table[:2])
    fails(r"^k_pages: found rank 3", k=k[0])
    fails(r"^v_pages: found tokens of a page 4, needed 8", v=v[:, :, :4])
    fails(r"^v_pages: found pages 5, needed 30", v=v[:5])
    fails(r"^v_pages: found heads 1, needed 2", v=v[:, :1])
    fails(r"^k_pages: found head width 5, needed 24", k=np.ascontiguousarray(k[..., :5]))
    fails(r"^k_pages: found width 0, needed at least 1", k=k[..., :0])
    fails(r"^v_pages: found width 0, needed at least 1", v=v[..., :0])
    fails(r"^k_pages: found element type float64", k=k.astype(float))
    fails(r"^v_pages: found 3 heads, needed a divisor of the 4", k=k[:, [0, 0, 0]], v=v[:, [0, 0, 0]])
    fails(r"^k_pages: found rows with gaps", k=k.repeat(2, -1)[..., ::2])
    apart = np.zeros((P, 2, PAGE + 1, D), np.float32)[:, :, :PAGE]
    fails(r"^k_pages: found pages that begin 432 elements apart, needed a multiple of the 192 of a page's rows", k=apart)
    fails(r"^v_pages: found pages that begin 2 times their rows apart, needed 4", k=np.repeat(k, 2, 0)[::2])
    fails(r"^window: found -1", window=-1)
    fails(r"^sink: found shape", sink=np.zeros(3, np.float32))


# ----------------------------------------------------------------------------
# The cache
# ----------------------------------------------------------------------------


class Whole:
    """What a cache should hold: the tokens of each sequence."""

    def __init__(self, type, G):
        self.tokens = [[np.zeros((1, G, 0, width), TYPES[type]) for width in (D, E)] for _ in range(B)]

    def append(self, new, counts):
        for b, n in enumerate(counts):
            self.tokens[b] = [np.concatenate([old, x[b : b + 1, :, :n]], 2) for old, x in zip(self.tokens[b], new)]

    def truncate(self, counts):
        self.tokens = [[x[:, :, :n] for x in pair] for pair, n in zip(self.tokens, counts)]

    def check(self, cache, q, type, layout="bhnd", **options):
        found = own_layout(cache.attend(own_layout(q, layout), **options), layout)
        for b in range(B):
            check(found[b : b + 1], reference.dense(q[b : b + 1], *self.tokens[b], **{"causal": True, **options}), type)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
def test_cache(type, layout):
    rng = np.random.default_rng(0)
    G = 2
    cache, whole = fovea.PagedCache(20, PAGE, G, D, E, batch=B, dtype=TYPES[type], layout=layout), Whole(type, G)
    assert cache.nbytes == 20 * PAGE * G * (D + E) * TYPES[type].itemsize and (cache.pages, cache.page) == (20, PAGE)
    q = rng.standard_normal((B, H, 1, D)).astype(TYPES[type])
    whole.check(cache, q, type, layout)
    for counts in ([9, 0, 3], [1, 1, 1], [6, 30, 0], [17, 2, 40], [0, 0, 8]):
        new = [rng.standard_normal((B, G, max(counts), width)).astype(TYPES[type]) for width in (D, E)]
        cache.append(*(own_layout(x, layout) for x in new), lengths=counts)
        whole.append(new, counts)
        whole.check(cache, q, type, layout)
        assert cache.free_pages == 20 - sum(-(-n // PAGE) for n in cache.lengths)
    whole.check(cache, q, type, layout, window=5, sink=np.zeros(H, np.float64 if type == "float64" else np.float32))
    counts = [8, 0, 41]
    cache.truncate(counts)
    whole.truncate(counts)
    assert cache.lengths.tolist() == counts and cache.free_pages == 20 - 1 - 6
    whole.check(cache, q, type, layout)
    more = [rng.standard_normal((B, G, 5, width)).astype(TYPES[type]) for width in (D, E)]
    cache.append(*(own_layout(x, layout) for x in more))
    whole.append(more, [5] * B)
    # The queries of all new tokens.
    whole.check(cache, rng.standard_normal((B, H, 5, D)).astype(TYPES[type]), type, layout)
    cache.truncate(0)
    assert cache.free_pages == 20 and not cache.attend(own_layout(q, layout)).any()


def filled():
    cache, whole = fovea.PagedCache(12, PAGE, 2, D, E, batch=B), Whole("float32", 2)
    new = [np.random.default_rng(3).standard_normal((B, 2, 30, width)).astype(np.float32) for width in (D, E)]
    cache.append(*new, lengths=[10, 0, 30])
    whole.append(new, [10, 0, 30])
    return cache, whole, new, make(B=B, H=H, N=1, D=D)[0]


def test_copies(tmp_path):
    cache, whole, new, q = filled()
    path = tmp_path / "cache.safetensors"
    cache.save(path)
    for copy in (cache.fork(), fovea.PagedCache.load(path)):
        assert copy.lengths.tolist() == [10, 0, 30] and copy.free_pages == 6 and copy.nbytes == cache.nbytes
        copy.truncate([3, 0, 30])
        copy.append(*new, lengths=[20, 15, 1])
        other = Whole("float32", 2)
        other.append(new, [3, 0, 30])
        other.append(new, [20, 15, 1])
        other.check(copy, q, "float32")
        whole.check(cache, q, "float32")
    damaged = path.read_bytes()[:-1]
    path.write_bytes(damaged)
    refused(f"{path.name}", fovea.PagedCache.load, path)
    fovea.KVCache(1, 1, 4, capacity=3).save(path)
    refused(f"{path.name}", fovea.PagedCache.load, path)


def test_errors_of_the_cache():
    cache, whole, new, q = filled()
    refused("^k: found tokens for 8 more pages, needed at most 6, those of 12 that are free", cache.append, *new, lengths=[30, 30, 3])
    refused("^k: found head width 5, needed 24", cache.append, new[0][..., :5], new[1])
    refused("^k: found batch 2, needed 3", cache.append, *(x[:2] for x in new))
    refused("^v: found length 29, needed 30", cache.append, new[0], new[1][:, :, 1:])
    refused("^lengths: found 31 for batch entry 0, needed 0 to 30", cache.append, *new, lengths=[31, 0, 0])
    refused("^length: found 5 for batch entry 1, needed 0 to 0", cache.truncate, 5)
    refused("^q: found batch 1, needed 3", cache.attend, q[:1])
    refused("^q: found element type float64, needed float32", cache.attend, q.astype(float))
    refused("^q: found head width 3, needed 24", cache.attend, q[..., :3])
    whole.check(cache, q, "float32")
    for name, wrong in (("pages", (0, 8, 2, 4)), ("page", (4, 0, 2, 4)), ("heads", (4, 8, 0, 4)), ("width", (4, 8, 2, 0))):
        refused(f"^{name}: found 0", fovea.PagedCache, *wrong)
    refused("^batch: found 0", fovea.PagedCache, 4, 8, 2, 4, batch=0)
    refused("^batch: found 1099511627776, needed at most 16777216", fovea.PagedCache, 4, 8, 2, 4, batch=2**40)
    refused("^pages: found 2147483648, needed at most 2147483647", fovea.PagedCache, 2**31, 8, 2, 4)
    refused("^dtype: found 3, needed an element type", fovea.PagedCache, 4, 8, 2, 4, dtype=3)
    refused("^dtype: found 'int32'", fovea.PagedCache, 4, 8, 2, 4, dtype="int32")
