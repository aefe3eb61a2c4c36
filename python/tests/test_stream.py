# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Lists of sources, and the gradients behind them, against NumPy, plain loops and dense attention."""

import itertools

import numpy as np
import pytest
from conftest import TYPES, check, make, near, refused

import fovea
from fovea import Source, _fovea, reference

B, H, G, D, E = 2, 4, 2, 24, 20
LENGTHS = [1, 13, 63, 64, 65, 130]


def blocks(size):
    return lambda b, rows, n: (size * b - size, size * b + size)


def without_last(ranges):
    """Those of a source that has one row more."""
    return lambda b, rows, n: (*ranges(b, rows - 1, n), 0, rows - 1)


def two(b, rows, n):
    return [(0, 1), (2, 3)]


def past(b, rows, n):
    return 0, b - 1


class Sources:
    """Lists of sources for N queries. `self.<name>()` is (sources, options)."""

    def __init__(self, type, N):
        self.N, self.type = N, TYPES[type]
        self.state = np.float64 if type == "float64" else np.float32
        self.rng = np.random.default_rng(N)
        self.q, self.k, self.v = make(type, B=B, H=H, G=G, N=N, D=D, E=E)

    def normal(self, *shape, dtype=None):
        return self.rng.standard_normal(shape).astype(dtype or self.type)

    def rows(self, M):
        return self.normal(B, G, M, D), self.normal(B, G, M, E)

    def whole(self):
        return [Source(self.k, self.v)], {}

    def window_and_summaries(self):
        far = self.rows(-(-self.N // 16))
        weight = np.full((1, 1, far[0].shape[2]), np.log(16), self.state)
        near = Source(self.k, self.v, causal=True, ranges=blocks(16))
        return [near, Source(*far, log_weight=weight, ranges=past)], {"block": 16}

    def sinks_and_window(self):
        first = Source(self.k, self.v, causal=True, ranges=lambda b, rows, n: (0, 3))
        rest = Source(self.k, self.v, causal=True, window=11, ranges=lambda b, rows, n: (3, rows))
        return [first, rest], {"sink": self.normal(1, H), "scale": 0.3}

    def around(self):
        """Two ranges, and one that is cut to a level."""
        twice = Source(*self.rows(30), ranges=lambda b, rows, n: [(0, b - 1), (b + 2, rows)])
        level = Source(*self.rows(21), bias=self.normal(1, H, self.N, 21), ranges=lambda b, rows, n: (b // 2 * 2 - 2, b % 5 + 9, 3, 15))
        return [twice, level], {"block": 8}

    def masks(self):
        prefix = Source(self.k, self.v, causal=True, prefix=5, bias=self.normal(1, 1, self.N, self.N))
        window = Source(*self.rows(70), window=9, log_weight=self.normal(B, 1, 70))
        return [prefix, window], {"sink": self.normal(B, H, dtype=self.state)}

    def strides(self):
        """Of whole sequences, of those of which some tokens make no row yet, and of more rows than queries."""
        own = Source(*self.rows(self.N // 5), causal=True, stride=5)
        window = Source(*self.rows(self.N // 3), causal=True, window=20, stride=3, log_weight=self.normal(1, 1, self.N // 3))
        around = Source(*self.rows(40), window=30, stride=4, bias=self.normal(1, H, self.N, 40))
        prefix = Source(*self.rows(25), causal=True, prefix=17, stride=7)
        return [own, window, around, prefix, Source(self.k, self.v, causal=True, window=8)], {"sink": self.normal(1, H)}

    def strides_of_blocks(self):
        far = Source(*self.rows(self.N // 8), causal=True, stride=8, ranges=lambda b, rows, n: (0, 2 * b - 1))
        return [Source(self.k, self.v, causal=True, ranges=blocks(16)), far], {"block": 16}

    def strides_of_lengths(self):
        """Lengths count tokens, also those that make no row yet."""
        n = np.array([self.N, (self.N + 1) // 2])
        tokens = np.array([self.N + 150, 37])
        own = Source(self.k, self.v, causal=True, window=9, lengths=n)
        far = Source(*self.rows((self.N + 150) // 8), causal=True, stride=8, lengths=tokens)
        return [own, far], {"query_lengths": n - n // 3, "sink": self.normal(1, H)}

    def lengths(self):
        n = np.array([self.N, (self.N + 1) // 2])
        own = Source(self.k, self.v, causal=True, lengths=n, ranges=blocks(16))
        return [own, Source(*self.rows(40), lengths=np.array([0, 17], np.int32))], {"block": 16, "query_lengths": n}

    def empty(self):
        """No rows, no window, and ranges outside of the rows."""
        outside = Source(*self.rows(9), ranges=lambda b, rows, n: (rows + 3, rows + 9))
        return [Source(*self.rows(0)), Source(*self.rows(5), window=0), outside, Source(self.k, self.v, causal=True)], {}

    def far(self):
        """Bounds of more than 32 bits choose blocks: block 0 reads all, others a window."""
        far = 1 << 30
        window = Source(self.k, self.v, window=9, ranges=lambda b, rows, n: (far - b * far, rows, 3, rows))
        first = Source(self.k, self.v, ranges=lambda b, rows, n: (b * far, rows, 3, rows))
        return [window, first, Source(self.k, self.v, ranges=lambda b, rows, n: (0, 3))], {"block": 4}

    def nothing(self):
        return [Source(*self.rows(0)), Source(*self.rows(5), window=0)], {}

    def sink_alone(self):
        return [Source(*self.rows(0)), Source(*self.rows(5), window=0)], {"sink": self.normal(1, H)}

    def segments(self):
        """The last queries, in documents."""
        k, v = self.rows(self.N + 7)
        ids = np.sort(self.rng.integers(0, 4, (B, self.N + 7)), axis=1)
        return [Source(k, v, causal=True, segments=(ids[:, 7:], ids))], {}

    def segments_of_lengths(self):
        ids = np.arange(self.N)[None] // 9
        n = np.array([self.N, (self.N + 1) // 2])
        return [Source(self.k, self.v, segments=(ids, ids), lengths=n)], {"query_lengths": n - n // 3}


NAMES = [name for name, value in vars(Sources).items() if not name.startswith("_") and name not in ("normal", "rows")]


def make_case(name, type, N):
    made = Sources(type, N)
    return made.q, *getattr(made, name)()


TYPES_IN_TURN = itertools.cycle(TYPES)


@pytest.mark.parametrize("name,N,type", [(name, N, next(TYPES_IN_TURN)) for name in NAMES for N in LENGTHS])
def test_stream(name, N, type):
    q, sources, options = make_case(name, type, N)
    found = fovea.stream(q, sources, **options, return_lse=True)
    check(found, reference.stream(q, sources, **options, return_lse=True), type)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target,type", [("reference", "float64"), ("gpu-sim", "float32"), ("gpu-sim", "bfloat16")])
def test_other_targets(name, target, type):
    q, sources, options = make_case(name, type, 33)
    found = fovea.stream(q, sources, **options, return_lse=True, target=target)
    check(found, reference.stream(q, sources, **options, return_lse=True), type)


def compare_gradients(q, sources, options, type, target="cpu", bound=None):
    rng = np.random.default_rng(3)
    out, lse = fovea.stream(q, sources, **options, return_lse=True)
    options = {**options, "d_lse": np.where(np.isfinite(lse), rng.standard_normal(lse.shape), 0).astype(lse.dtype)}
    d_out = rng.standard_normal(out.shape).astype(out.dtype)
    found = fovea.stream_backward(d_out, q, sources, out, lse, **options, target=target)
    expected = reference.stream_backward(d_out, q, sources, out, lse, **options)
    assert len(found) == len(expected) and len(found[1]) == len(expected[1])
    near(found[0], expected[0], type, bound)
    for mine, wanted in zip(found[1], expected[1]):
        assert mine.captures == ()
        for one, other, name in zip(mine[:-1], wanted, fovea.SourceGradients._fields[:-1], strict=True):
            assert (one is None) == (other is None)
            if one is not None and other.size:
                wide = name in ("log_weight", "bias") and one.dtype != TYPES[type]
                near(one, other, "float32" if wide else type, bound or (3e-2 if wide else None))
    if len(found) == 3:
        near(found[2], expected[2], str(found[2].dtype), bound or 3e-2)


@pytest.mark.parametrize("name,N", [(name, N) for name in NAMES for N in (1, 37, 65)])
def test_gradients(name, N):
    compare_gradients(*make_case(name, "float64", N), "float64", bound=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
def test_gradients_of_all_types(name, type):
    compare_gradients(*make_case(name, type, 65), type, bound=None if type == "float32" else 4e-2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["reference", "gpu-sim"])
def test_gradients_of_other_targets(name, target):
    compare_gradients(*make_case(name, "float32", 33), "float32", target)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 9}, {"causal": True, "prefix": 4}], ids=str)
def test_one_source_is_dense_attention(options):
    q, k, v = make(B=B, H=H, G=G, N=65, M=70, D=D, E=E)
    found = fovea.stream(q, [Source(k, v, **options)], return_lse=True)
    check(found, tuple(np.asarray(each, np.float64) for each in fovea.dense(q, k, v, **options, return_lse=True)))


def test_parts_are_the_whole():
    """A list of parts of the keys is attention to all."""
    q, k, v = make(B=B, H=H, G=G, N=70, D=D, E=E)
    parts = [Source(k[:, :, i : i + 23], v[:, :, i : i + 23]) for i in range(0, 70, 23)]
    check(fovea.stream(q, parts, return_lse=True), reference.dense(q, k, v, return_lse=True))
    # The same source twice counts twice.
    once, twice = (fovea.stream(q, [Source(k, v)] * times, return_lse=True)[1] for times in (1, 2))
    assert np.allclose(twice - once, np.log(2), atol=1e-5)


def test_types_of_sources():
    q, k, v = make("bfloat16", B=B, H=H, G=G, N=40, D=D, E=E)
    _, wide_k, wide_v = make("float32", B=B, H=H, G=G, N=40, M=9, D=D, E=E, seed=1)
    sources = [Source(k, v), Source(wide_k, wide_v), Source(k, wide_v[:, :, :1].repeat(40, axis=2))]
    check(fovea.stream(q, sources, return_lse=True), reference.stream(q, sources, return_lse=True), "bfloat16")


def test_keys_of_all_heads():
    """Extents of 1 of keys broadcast; gradients want them whole."""
    q, k, v = make(B=B, H=H, G=G, N=40, D=D, E=E)
    sources = [Source(k[:1, :1], v, causal=True)]
    check(fovea.stream(q, sources), reference.stream(q, sources))
    out, lse = fovea.stream(q, sources, return_lse=True)
    refused(r"^sources\[0\]\.k: found batch 1, needed 2", fovea.stream_backward, out, q, sources, out, lse)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_rows_that_are_not_read_may_hold_anything(type):
    q, sources, options = make_case("window_and_summaries", type, 65)
    expected = fovea.stream(q, sources, **options)
    # Ahead of every query, and never in a range.
    for source in sources:
        k, v = (np.concatenate([x, np.full_like(x[:, :, :1], np.nan)], axis=2) for x in (source.k, source.v))
        weight = source.log_weight
        if weight is not None:
            weight = np.concatenate([weight, weight[..., :1]], axis=2)
        mask = {"bias": np.where(np.arange(k.shape[2]) > np.arange(65)[:, None], -np.inf, 0.0).astype(np.float32)}
        sources = [*sources[1:], Source(k, v, log_weight=weight, ranges=without_last(source.ranges), **(mask if source.causal else {}))]
    found = fovea.stream(q, sources, **options)
    near(found, np.asarray(expected, np.float64), type)
    q, k, v = make(type, B=B, H=H, G=G, N=40, D=D, E=E)
    ids = np.arange(40)[None] // 13
    inside = Source(k, v, segments=(ids[:, :26], ids))
    expected = fovea.stream(q[:, :, :26], [inside], return_lse=True)
    k[:, :, 26:], v[:, :, 26:] = np.nan, np.inf
    found = fovea.stream(q[:, :, :26], [inside], return_lse=True)
    assert all(np.array_equal(*pair) for pair in zip(found, expected))
    gradients = fovea.stream_backward(found[0], q[:, :, :26], [inside], *found)
    assert np.isfinite(gradients[0].astype(float)).all() and not gradients[1][0].k[:, :, 26:].any()


def swap(array):
    return np.ascontiguousarray(array.swapaxes(1, 2))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", ["window_and_summaries", "sinks_and_window", "around"])
def test_tokens_first(name, given):
    q, sources, options = make_case(name, "float32", 65)
    out, lse = fovea.stream(q, sources, **options, return_lse=True)
    gradients = fovea.stream_backward(out, q, sources, out, lse, **options)
    swapped = [Source(swap(s.k), swap(s.v), causal=s.causal, window=s.window, log_weight=s.log_weight, bias=s.bias, ranges=s.ranges)
               for s in sources]  # fmt: skip
    options = {**options, "layout": "bnhd"}
    place = np.full_like(swap(out), np.nan) if given else None
    found = fovea.stream(swap(q), swapped, **options, out=place)
    assert np.array_equal(swap(found), out) and (not given or found is place)
    memory = None
    if given:
        memory = (np.empty_like(swap(q)), [fovea.SourceGradients(np.empty_like(s.k), None) for s in swapped], None)[: len(gradients)]
    mine = fovea.stream_backward(swap(out), swap(q), swapped, swap(out), lse, **options, gradients=memory)
    assert np.array_equal(swap(mine[0]), gradients[0])
    for index, (one, other) in enumerate(zip(mine[1], gradients[1], strict=True)):
        assert np.array_equal(swap(one.k), other.k) and np.array_equal(swap(one.v), other.v)
        assert (one.bias is None) == (other.bias is None) and (one.bias is None or np.array_equal(one.bias, other.bias))
        assert not given or one.k is memory[1][index].k
    assert not given or mine[0] is memory[0]


def test_gradients_that_are_not_wanted():
    q, sources, options = make_case("masks", "float32", 40)
    out, lse = fovea.stream(q, sources, **options, return_lse=True)
    every = fovea.stream_backward(out, q, sources, out, lse, **options)
    some = fovea.stream_backward(out, q, sources, out, lse, **options, return_d_bias=False)
    assert some[1][0].bias is None and np.array_equal(some[1][1].log_weight, every[1][1].log_weight)
    few = fovea.stream_backward(out, q, sources, out, lse, **options, return_d_bias=False, return_d_log_weight=False)
    assert few[1][1].log_weight is None and np.array_equal(few[2], every[2])


TABLE = fovea.capture(np.random.default_rng(1).standard_normal(400).astype(np.float32))
SCORES = {
    "cap": lambda s, b, h, i, j: 2 * fovea.math.tanh(s / 2),
    "distance": lambda s, b, h, i, j: fovea.math.where(i - j < 40, s + (j - i) / 16, -np.inf),
    "table": lambda s, b, h, i, j: s * TABLE[j - i + 200],
}


# Few queries have a kernel of their own.
@pytest.mark.parametrize("N", [3, 65])
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("type", ["float64", "bfloat16"])
def test_functions_of_scores(name, N, type):
    q, sources, options = make_case("around", type, N)
    options |= {"score": SCORES[name], "return_lse": True}
    check(fovea.stream(q, sources, **options), reference.stream(q, sources, **options), type)


@pytest.mark.parametrize("N", [3, 65])
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_functions_of_scores_on_the_emulated_gpu(name, N, type):
    q, sources, options = make_case("around", type, N)
    options |= {"score": SCORES[name]}
    near(fovea.stream(q, sources, **options, target="gpu-sim"), reference.stream(q, sources, **options), type)


@pytest.mark.parametrize("N", [3, 65])
@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_functions_of_scores(name, N):
    compare_gradients(*make_case("around", "float64", N)[:2], {"block": 8, "score": SCORES[name]}, "float64", bound=1e-7)


def summaries_with_a_score(type, N):
    """On both sides; a stride alone cuts nothing."""

    def score(s, b, h, i, j):
        return fovea.math.where(i - j < 40, s + (j - i) / 16, -np.inf)

    made = Sources(type, N)
    return made.q, [Source(*made.rows(21), causal=True, stride=5), Source(*made.rows(40), stride=3)], {"score": score}


@pytest.mark.parametrize("N", [3, 65])
@pytest.mark.parametrize("type, target", [("float64", "cpu"), ("bfloat16", "cpu"), ("float64", "reference"), ("float32", "gpu-sim")])
def test_functions_of_positions_of_summaries(N, type, target):
    """They are positions of tokens."""
    q, sources, options = summaries_with_a_score(type, N)
    found = fovea.stream(q, sources, **options, return_lse=True, target=target)
    check(found, reference.stream(q, sources, **options, return_lse=True), type)


@pytest.mark.parametrize("N", [3, 65])
@pytest.mark.parametrize("type, target, bound", [("float64", "cpu", 1e-7), ("float32", "gpu-sim", None)])
def test_gradients_of_functions_of_positions_of_summaries(N, type, target, bound):
    compare_gradients(*summaries_with_a_score(type, N), type, target, bound=bound)


@pytest.mark.parametrize("positions", ["stored", "listed"])
@pytest.mark.parametrize("type, N", [("float64", 37), ("float32", 65), ("bfloat16", 3)])
def test_strides_of_listed_rows(positions, type, N):
    """Those that lists name are summaries: they stand where they are stored or listed, in tokens."""
    made = Sources(type, N)
    chosen = made.rng.integers(-1, 10, (B, G, -(-N // 16), 4)).astype(np.int32)
    far = Source(*made.rows(20), causal=True, window=60, stride=4, rows=chosen, unit=2, positions=positions)
    sources, options = [Source(made.k, made.v, causal=True, window=8), far], {"block": 16}
    for target in ("cpu", "reference"):
        found = fovea.stream(made.q, sources, **options, return_lse=True, target=target)
        check(found, reference.stream(made.q, sources, **options, return_lse=True), type)
    compare_gradients(made.q, sources, options, type, bound=1e-11 if type == "float64" else None)


def compare_threads(q, sources, options):
    """The same bits on any number of threads."""
    results = []
    try:
        for threads in (1, 2, 5):
            fovea.set_num_threads(threads)
            out, lse = fovea.stream(q, sources, **options, return_lse=True)
            dq, of_sources = fovea.stream_backward(out, q, sources, out, lse, **options)
            results.append([out, lse, dq, *(x for each in of_sources for x in each if x is not None)])
    finally:
        fovea.set_num_threads(0)
    for other in results[1:]:
        assert all(np.array_equal(*pair) for pair in zip(results[0], other, strict=True))


def test_same_bits_on_any_number_of_threads():
    compare_threads(*make_case("window_and_summaries", "float32", 1030))


def test_one_kernel_for_all_lengths():
    before = _fovea.cache_statistics()[2]
    for N in (30, 65, 130):
        q, sources, options = make_case("window_and_summaries", "float32", N)
        # Two columns more: a configuration of its own.
        q, sources = q[..., :21].copy(), [Source(s.k[..., :21], s.v, log_weight=s.log_weight, ranges=s.ranges) for s in sources]
        out, lse = fovea.stream(q, sources, **options, return_lse=True)
        fovea.stream_backward(out, q, sources, out, lse, **options)
    assert _fovea.cache_statistics()[2] - before == 2


def test_a_wrong_pattern_is_noticed():
    q, sources, options = make_case("window_and_summaries", "float32", 65)
    wrong = [Source(sources[0].k, sources[0].v, causal=True, ranges=blocks(17)), sources[1]]
    with pytest.raises(AssertionError):
        check(fovea.stream(q, wrong, **options), reference.stream(q, sources, **options))
    q, summaries, options = make_case("strides", "float32", 65)
    wrong = [Source(summaries[0].k, summaries[0].v, causal=True, stride=4), *summaries[1:]]
    with pytest.raises(AssertionError):
        check(fovea.stream(q, wrong, **options), reference.stream(q, summaries, **options))
    q, sources, options = make_case("window_and_summaries", "float32", 65)
    sources[1] = Source(sources[1].k, sources[1].v, ranges=past)
    with pytest.raises(AssertionError):
        check(fovea.stream(q, sources, **options), reference.stream(q, make_case("window_and_summaries", "float32", 65)[1], **options))


def test_errors():
    q, k, v = make(B=B, H=H, G=G, N=37, D=D, E=E)
    here = rf"{__file__}:\d+: "
    ids = np.zeros((B, 37), int)

    def fails(match, *sources, **options):
        refused(match, fovea.stream, q, list(sources), **options)

    for ranges, match in (
        (lambda b, rows, n: b * rows, "found a factor or divisor that is no constant"),
        (lambda b, rows, n: (0, b % n), "found a factor or divisor that is no constant"),
        (lambda b, rows, n: (0, rows // 0), "found floordiv 0, needed an integer of at least 1"),
        (lambda b, rows, n: (0, rows / 2), "found a comparison or a function of numbers"),
        (lambda b, rows, n: (0, min(b, 3)), "found a comparison or a function of numbers"),
    ):
        fails(rf"^sources\[0\]\.ranges: {here}{match}", Source(k, v, ranges=ranges), block=4)
    for ranges, match in (
        ("all", "found str, needed a function"),
        (lambda b, rows, n: (0, 1, 2), "found .*, needed \\(begin, end\\) or"),
        (lambda b, rows, n: [], "found no range"),
        (lambda b, rows, n: [(0, 4), (8, 8)], r".*found \(8, 8\), which is no row of any block, needed rows, or one range less"),
        (lambda b, rows, n: (0, 9, 12, 20), r".*found \(0, 9, 12, 20\), which is no row"),
        (lambda b, rows, n: (0, 1.5), "found 1.5, needed an integer"),
        (lambda b, rows: (0, 1), ""),
        (lambda b, rows, n: [(0, 10), (b, 20)], "found ranges 0 and 1 with rows in common for block 0"),
        # Where only the number of rows tells.
        (lambda b, rows, n: [(0, 10), (rows - 9, rows), (30 - 3 * b, 30)], r"found ranges \d and 2 with rows in common for block \d"),
    ):
        fails(rf"^sources\[1\]\.ranges: {match}", Source(k, v), Source(k[:, :, :20], v[:, :, :20], ranges=ranges), block=4)
    fails(r"^block: found 0, needed at least 1, since sources\[0\]\.ranges depend on the block", Source(k, v, ranges=past))
    fails("^block: found -1", Source(k, v), block=-1)
    fails("^sources: found none, needed at least 1")
    refused("^sources: found Source, needed a list", fovea.stream, q, Source(k, v))
    refused(r"^sources\[1\]: found ndarray, needed a fovea.Source", fovea.stream, q, [Source(k, v), k])
    # What convolutions give, for example.
    refused(r"^sources\[1\]: .*no soft-max over rows, as convolutions are", fovea.stream, q, [Source(k, v), np.zeros_like(q)])
    fails(r"^sources\[1\]\.v: found extent 9 in dimension 3, needed 20", Source(k, v), Source(k, v[..., :9]))
    fails(r"^sources\[0\]\.v: found extent 30 in dimension 2, needed 37", Source(k, v[:, :, :30]))
    fails(r"^sources\[0\]\.k: found head width 5, needed 24", Source(k[..., :5], v))
    fails(r"^sources\[0\]\.k: found rank 3", Source(k[0], v))
    fails(r"^sources\[0\]\.k: found element type float64, needed float16 or bfloat16 or float32", Source(k.astype(float), v))
    fails(r"^sources\[0\]\.v: found 3 heads, needed a divisor of the 4 heads of q", Source(k[:, :1], np.repeat(v[:, :1], 3, 1)))
    fails(r"^sources\[0\]\.log_weight: found shape", Source(k, v, log_weight=np.ones((2, 2, 5), np.float32)))
    fails(r"^sources\[0\]\.bias: found shape", Source(k, v, bias=np.ones((2, 2, 5), np.float32)))
    fails(r"^sources\[0\]\.window: found -1", Source(k, v, window=-1))
    fails(r"^sources\[0\]\.causal: found 1, needed True or False", Source(k, v, causal=1))
    fails(r"^sources\[0\]\.prefix: found it beside a window", Source(k, v, causal=True, window=3, prefix=3))
    fails(r"^sources\[0\]\.prefix: found it alone", Source(k, v, prefix=3))
    fails(r"^sources\[0\]\.lengths: found 50 for batch entry 1, needed 0 to 37", Source(k, v, lengths=np.array([1, 50])))
    fails(r"^sources\[0\]\.ranges: found 2 beside lengths", Source(k, v, lengths=np.array([1, 5]), ranges=two))
    fails(r"^sources\[0\]\.ranges: found 2 beside lengths", Source(k, v, ranges=two), query_lengths=np.array([1, 5]))
    fails(r"^sources\[0\]\.segments: found ndarray, needed a pair", Source(k, v, segments=ids))
    fails(r"^sources\[0\]\.segments\[0\]: found element type float64", Source(k, v, segments=(ids + 0.5, ids)))
    fails(r"^sources\[0\]\.segments\[1\]: found shape \(2, 30\), needed \(2, 37\)", Source(k, v, segments=(ids, ids[:, :30])))
    fails(r"^sources\[0\]\.stride: found 0, needed an integer of at least 1", Source(k, v, stride=0))
    fails(r"^sources\[0\]\.stride: found 2000000, needed at most 1048576", Source(k, v, stride=2000000))
    fails(r"^sources\[0\]\.segments: found them beside a stride", Source(k, v, stride=4, segments=(ids, ids)))
    fails(r"^sources\[0\]\.lengths: found 152 for batch entry 1, needed 0 to 151", Source(k, v, stride=4, lengths=np.array([1, 152])))
    sources = [Source(k, v)]
    out, lse = fovea.stream(q, sources, return_lse=True)

    def fails_to_differentiate(match, memory):
        refused(match, fovea.stream_backward, out, q, sources, out, lse, gradients=memory)

    fails_to_differentiate("^gradients: found parts 1, needed 2", (None,))
    fails_to_differentiate(r"^gradients\[1\]: found sources 2, needed 1", (None, [(None, None)] * 2))
    fails_to_differentiate(r"^gradients\[1\]\[0\]\.bias: found an array", (None, [(None, None, None, out)]))
    refused("^lse: found shape", fovea.stream_backward, out, q, sources, out, lse[:, :, 1:])


def test_bounds_that_are_far_out_of_the_rows():
    """In a third block this one is 2^31, which 32 bits do not hold."""
    q, k, v = make(H=2, G=1, N=141)
    d_out, _, _ = make(H=2, G=1, N=141, seed=1)
    sources = [
        Source(k, v, ranges=lambda b, rows, n: (0, 16)),
        Source(k, v, ranges=lambda b, rows, n: (b * (1 << 30), rows, 16, rows)),
    ]
    found = []
    for target in ("gpu-sim", "reference"):
        out, lse = fovea.stream(q, sources, block=16, return_lse=True, target=target)
        d_q, parts = fovea.stream_backward(d_out, q, sources, out, lse, block=16, target=target)
        found.append((out, d_q, *(each for part in parts for each in (part.k, part.v))))
    for one, other in zip(*found, strict=True):
        near(one, other, "float32")
