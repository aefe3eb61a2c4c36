# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that are columns of the keys: read where the keys lie, in functions and in caches."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import TYPES, check, near, refused

import fovea
from fovea import _fovea, reference

#: Of DeepSeek's latent attention, and small ones: widths of keys and of values.
WIDTHS = [(576, 512), (40, 32), (17, 16), (24, 24), (9, 1)]
PAGE = 8


def make(type, width, H=4, G=1, N=1, M=37, B=2):
    rng = np.random.default_rng(width)
    q, k = (rng.standard_normal(shape).astype(TYPES[type]) for shape in ((B, H, N, width), (B, G, M, width)))
    return q, k


@pytest.mark.parametrize("G", [1, 2])
@pytest.mark.parametrize("N", [1, 3, 70])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("type", TYPES)
def test_views_of_keys(type, widths, N, G):
    width, columns = widths
    q, k = make(type, width, G=G, N=N, M=130)
    v = k[..., :columns]
    expected = reference.dense(q, k, v.copy(), causal=True)
    check(fovea.dense(q, k, v, causal=True), expected, type)
    source = fovea.Source(k, v, causal=True)
    check(fovea.stream(q, [source]), expected, type)
    copied = fovea.stream(q, [fovea.Source(k, v.copy(), causal=True)])
    assert np.array_equal(fovea.stream(q, [source]), copied)


@pytest.mark.parametrize("H", [1, 4, 7])
@pytest.mark.parametrize("type", TYPES)
def test_parts_of_keys(type, H):
    """Of keys in parts, and the last tile shorter: the same bits for any number of threads."""
    q, k = make(type, 576, H=H, M=1500, B=1)
    rows = np.random.default_rng(3).permutation(1500)[None, None, None, :1100].astype(np.int32)
    calls = (
        (lambda: fovea.dense(q, k, k[..., :512]), slice(None)),
        (lambda: fovea.selected(q, k, k[..., :512], rows, unit=1, causal=False), rows[0, 0, 0]),
    )
    for call, read in calls:
        found = call()
        fovea.set_num_threads(1)
        alone = call()
        fovea.set_num_threads(0)
        assert found.tobytes() == alone.tobytes()
        check(found, reference.dense(q, k[:, :, read], k[:, :, read, :512]), type)


# Keys of 151 MB, of which values would be 134 MB, and every other column of them 67 MB: there is memory for neither. Of bf16 twice as many.
PROGRAM = """
import resource, sys
import ml_dtypes
import numpy as np
import fovea

fovea.set_num_threads(1)
type = np.dtype(sys.argv[3])
k = np.ones((1, 1, 2**18 // type.itemsize, 576), type)
queries = int(sys.argv[2])
q = np.ones((1, 4 if queries < 70 else 1, queries, 576), type)
rows = np.arange(0, 900, 32, dtype=np.int32)[None, None, None]

def call(k, step):
    v = k[..., : 512 : step]
    return fovea.dense(q, k, v) if sys.argv[1] == "dense" else fovea.selected(q, k, v, rows)

for step in (1, 2):  # compiles
    call(k[:, :, :999], step)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 48 * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
print("right" if np.all(call(k, 1) == 1) else "wrong")
try:
    call(k, 2)
except MemoryError as error:
    print("copied" if "must be copied" in str(error) else error)
"""


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("function, queries", [("dense", 1), ("dense", 8), ("dense", 70), ("dense", 300), ("selected", 1)])
def test_values_are_read_where_keys_lie(function, queries, type):
    """Columns that do not lie one after the other must be copied: so a copy is noticed."""
    arguments = [sys.executable, "-c", PROGRAM, function, str(queries), type]
    process = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["right", "copied"]


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_chosen_rows(type):
    q, k = make(type, 40, M=64)
    rows = np.stack([np.random.default_rng(b).permutation(64)[:20] for b in range(2)]).astype(np.int32)
    found = fovea.stream(q, [fovea.Source(k, k[..., :32], rows=rows[:, None, None], unit=1)])
    for b in range(2):
        own = k[b : b + 1, :, np.sort(rows[b])]
        check(found[b : b + 1], reference.dense(q[b : b + 1], own, own[..., :32]), type)


@pytest.mark.parametrize("page", [1, PAGE])
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
def test_pages(type, layout, page):
    rng = np.random.default_rng(0)
    pages = rng.standard_normal((12, 2, page, 40)).astype(TYPES[type])
    table, n = rng.permutation(12)[None, :5], 5 * page - page // 2
    q = rng.standard_normal((1, 4, 1, 40)).astype(TYPES[type])
    own = np.concatenate(list(pages[table[0]]), axis=1)[None, :, :n]
    given, query = (pages, q) if layout == "bhnd" else (pages.swapaxes(1, 2).copy(), q.swapaxes(1, 2))
    found = fovea.paged(query, given, given[..., :32], table, [n], layout=layout)
    check(found if layout == "bhnd" else found.swapaxes(1, 2), reference.dense(q, own, own[..., :32], causal=True), type)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_latent_attention_on_gpus(type):
    """One query in parts of many keys, and of chosen ones."""
    q, k = make(type, 576, H=5, M=700, B=1)
    v = k[..., :512]
    check(fovea.dense(q, k, v, causal=True, target="gpu-sim"), reference.dense(q, k, v.copy(), causal=True), type)
    rows = np.random.default_rng(1).permutation(700)[:90].astype(np.int32)
    found = fovea.stream(q, [fovea.Source(k, v, rows=rows[None, None, None], unit=1)], target="gpu-sim")
    own = k[:, :, np.sort(rows)]
    check(found, reference.dense(q, own, own[..., :512]), type)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("N", [1, 70])
def test_gradients_of_both_parts_are_summed(N, target):
    text = f"""
    func.func @f(%q: tensor<2x4x{N}x40xf32>, %k: tensor<2x2x90x40xf32>) -> tensor<2x4x{N}x32xf32> {{
      %v = tensor.extract_slice %k[0, 0, 0, 0] [2, 2, 90, 32] [1, 1, 1, 1]
          : tensor<2x2x90x40xf32> to tensor<2x2x90x32xf32>
      %init = tensor.empty() : tensor<2x4x{N}x32xf32>
      %out = attn.dense ins(%q, %k, %v : tensor<2x4x{N}x40xf32>, tensor<2x2x90x40xf32>, tensor<2x2x90x32xf32>)
          outs(%init : tensor<2x4x{N}x32xf32>) {{mask = #attn.mask<causal>}} -> tensor<2x4x{N}x32xf32>
      return %out : tensor<2x4x{N}x32xf32>
    }}"""
    q, k = make("float32", 40, G=2, N=N, M=90)
    v = k[..., :32].copy()
    d_out = np.random.default_rng(1).standard_normal((2, 4, N, 32)).astype(np.float32)
    found = fovea.compile(text, target=target).vjp()(q, k, d_out)
    out, lse = reference.dense(q, k, v, causal=True, return_lse=True)
    dq, dk, dv = (x.copy() for x in reference.dense_backward(d_out, q, k, v, out, lse, causal=True)[:3])
    dk[..., :32] += dv
    for one, other in zip(found, (dq, dk), strict=True):
        near(one, other, "float32")


# ----------------------------------------------------------------------------
# Caches
# ----------------------------------------------------------------------------


def make_cache(kind, width, columns, type, **options):
    if kind is fovea.KVCache:
        return kind(2, 2, width, columns, capacity=64, dtype=TYPES[type], **options)
    return kind(24, PAGE, 2, width, columns, batch=2, dtype=TYPES[type], **options)


KINDS = [fovea.KVCache, fovea.PagedCache]


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_caches_keep_keys_alone(kind, type, layout, tmp_path):
    def own(array):
        return array.swapaxes(1, 2) if layout == "bnhd" else array

    q, k = make(type, 40, G=2, N=3, M=30)
    cache = make_cache(kind, 40, 32, type, layout=layout, values_are_keys=True)
    assert cache.nbytes == make_cache(kind, 40, 1, type).nbytes * 40 // 41
    cache.append(own(k[:, :, :17]))
    cache.append(own(k[:, :, 17:]), lengths=[13, 0])
    cache.save(tmp_path / "cache")
    fork, loaded = cache.fork(), kind.load(tmp_path / "cache")
    cache.append(own(k[:, :, :4]))
    for each in (fork, loaded):
        assert each.nbytes == cache.nbytes and each.lengths.tolist() == [30, 17]
        for b, n in enumerate([30, 17]):
            rows = k[b : b + 1, :, :n]
            found = own(each.attend(own(q)))[b : b + 1]
            check(found, reference.dense(q[b : b + 1], rows, rows[..., :32], causal=True), type)
    loaded.append(own(k[:, :, :1]))
    refused("^v: found an array, needed none: values are the first 32 columns of keys", loaded.append, own(k), own(k[..., :32]))
    assert loaded.lengths.tolist() == [31, 18]


@pytest.mark.parametrize("kind", KINDS)
def test_errors(kind):
    refused("^value_width: found 41, needed at most the 40 columns of keys", make_cache, kind, 40, 41, "float32", values_are_keys=True)
    cache = make_cache(kind, 40, 32, "float32")
    refused(r"^v: found none, needed an array of shape \[B,G,N,E\]", cache.append, make("float32", 40, G=2)[1])
    cache = make_cache(kind, 40, None, "float32", values_are_keys=True)
    refused("^k: found head width 32, needed 40", cache.append, make("float32", 32, G=2)[1])
    # As many as keys have.
    q, k = make("float32", 40, G=2)
    cache.append(k)
    check(cache.attend(q), reference.dense(q, k, k, causal=True))


def test_kernels_are_those_of_all_lengths():
    compiled = []
    for n in range(5, 60, 9):
        q, k = make("float32", 40, M=n)
        fovea.dense(q, k, k[..., :32], causal=True)
        compiled.append(_fovea.cache_statistics()[2])
    assert compiled[1:] == compiled[:-1]
