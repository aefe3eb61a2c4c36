# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of tokens, with which decoding reads what it has computed before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from . import _arguments as check
from . import _fovea, _layout
from ._trace import ScoreFunction, trace_score

__all__ = ["KVCache", "MultipoleCache", "PagedCache", "fast_multipole_decode"]


def _type_name(dtype: Any) -> str:
    try:
        # Which is a type to NumPy.
        if dtype is None:
            raise TypeError
        return dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        raise ValueError(f"dtype: found {dtype!r}, needed an element type") from None


class Cache:
    """What caches of tokens have in common."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        needed = "save(path) for a file of its content, or fork() for another cache"
        raise TypeError(f"{type(self).__name__}: found a cache to pickle or copy, needed {needed}")


class TokenCache(Cache):
    """What caches of keys and values have in common."""

    __slots__ = ("_cache",)
    _cache: Any
    #: The class that reads a file.
    _kind: Any
    #: The method of `_cache` that returns what callers expect.
    _attend = "attend"
    _append = "append"

    @classmethod
    def _own(cls, cache: Any) -> Self:
        own = cls.__new__(cls)
        own._cache = cache
        return own

    def _heads_first(self, name: str, array: Any) -> Any:
        return _layout.heads_first(name, array) if self._cache.tokens_first else array

    def _call_attend(self, q: Any, options: tuple[Any, ...], return_lse: bool, out: Any) -> Any:
        def call(out: Any) -> Any:
            return getattr(self._cache, self._attend)(q, *options, return_lse, self._cache.target, out=out)

        if not self._cache.tokens_first:
            return call(out)
        if out is None and self._cache.target == "gpu":
            raise ValueError("out: found none, needed an array [B,N,H,E] for layout 'bnhd' on a GPU")
        q = self._heads_first("q", q)
        return _layout.attend(call, q, self._cache.value_width, out, return_lse)

    def append(self, k: Any, v: Any = None, *, lengths: Any = None) -> None:
        """Adds the tokens k [B,G,N,D] and v [B,G,N,E], or k alone where values are its columns.

        With `lengths` [B], sequence b has that many of them: rows behind are not
        read.
        """
        if lengths is not None:
            lengths = check.to_numpy("lengths", lengths)
        if v is not None:
            v = self._heads_first("v", v)
        getattr(self._cache, self._append)(self._heads_first("k", k), v, lengths, self._cache.target, out=None)

    def truncate(self, length: Any) -> None:
        """Forgets what comes after the first `length` tokens: a number, or one for
        each sequence."""
        lengths = check.to_numpy("length", length)
        if lengths.ndim == 0:
            self._cache.truncate(length, "cpu")
        else:
            self._cache.truncate_each(lengths, "cpu")

    def fork(self) -> Self:
        """A cache of the same size and content.  Neither sees what the other
        appends from then on."""
        return self._own(self._cache.fork())

    def save(self, path: Any) -> None:
        """Writes the content to a file, in the format of safetensors.  One that is
        there is replaced at once."""
        self._cache.save(check.file_name(path))

    @classmethod
    def load(cls, path: Any, *, target: str = "cpu", device: int = 0) -> Self:
        """The cache that `save` wrote, wherever that was.  A damaged file raises ValueError."""
        return cls._own(cls._kind.load(check.file_name(path), device, target))

    @property
    def lengths(self) -> Any:
        """The tokens of each sequence, int64 [B]."""
        return np.array(self._cache.lengths)

    @property
    def nbytes(self) -> int:
        """Of keys and values, whether used or not."""
        return self._cache.nbytes


class KVCache(TokenCache):
    """Keys and values of the tokens so far: `dense` token by token.

        cache = fovea.KVCache(batch, heads, width, capacity=4096)
        cache.append(k, v)           # one token or many
        out = cache.attend(q)        # as many queries, those of the newest tokens

    The memory for `capacity` tokens of every sequence is taken at once, `nbytes` in
    all; nothing moves later, and `attend` reads it where it lies.  Keys have `width`
    columns and values `value_width`, by default as many, of type `dtype`: float32,
    float64, float16 or bfloat16.  With `layout` "bhnd" arrays are [B,H,N,D], with
    "bnhd" they are [B,N,H,D], those of the cache included.  With `values_are_keys` the
    first `value_width` columns of keys are the values, as in latent attention: they are kept
    once, and `append` takes keys alone.

    Sequences of a batch may have different `lengths`.  A call that raises leaves the
    cache as it was.  Calls that change a cache must not overlap others on it.
    """

    __slots__ = ()
    _kind = _fovea.KVCache

    def __init__(
        self,
        batch: int,
        heads: int,
        width: int,
        value_width: int | None = None,
        *,
        capacity: int,
        dtype: Any = "float32",
        layout: str = "bhnd",
        values_are_keys: bool = False,
        target: str = "cpu",
        device: int = 0,
    ):
        memory = value_width, _type_name(dtype), _layout.is_tokens_first(layout), values_are_keys, device, target
        self._cache = _fovea.KVCache.create(batch, heads, width, capacity, *memory)

    def attend(
        self,
        q: Any,
        *,
        scale: float | None = None,
        causal: bool = True,
        window: int | None = None,
        prefix: int | None = None,
        log_weight: Any = None,
        bias: Any = None,
        sink: Any = None,
        query_lengths: Any = None,
        score: ScoreFunction | None = None,
        return_lse: bool = False,
        out: Any = None,
    ) -> Any:
        """`dense` of q [B,H,N,D] over all tokens, of which these are the last ones.

        The arguments are those of `dense`, where M is the length of the longest
        sequence.  `query_lengths` are the `lengths` of `append`, if that had any.
        """
        if query_lengths is not None:
            query_lengths = check.to_readable("query_lengths", query_lengths)
        options = scale, causal, window, log_weight, bias, sink, prefix, None, query_lengths, *trace_score(score, q)
        return self._call_attend(q, options, return_lse, out)

    @property
    def capacity(self) -> int:
        return self._cache.capacity


class PagedCache(TokenCache):
    """Keys and values of sequences of any lengths, in pages that they share: `paged` token
    by token.

        cache = fovea.PagedCache(pages, 16, heads, width, batch=64)
        cache.append(k, v, lengths=lengths)      # a prompt of each sequence
        out = cache.attend(q)                    # of the newest tokens

    The memory for `pages` pages of `page` tokens is taken at once, `nbytes` in all.  Each of
    the `batch` sequences has as many pages as its tokens need: `free_pages` are left.
    `truncate` gives pages back.  All else is as in `KVCache`.  On a GPU all forks belong to one stream.

        prompt = fovea.PagedCache(pages, 16, heads, width)
        prompt.append(k, v)                      # once
        cache = prompt.fork([0] * 64)            # 64 sequences that begin with it
    """

    __slots__ = ()
    _kind = _fovea.PagedCache

    def __init__(
        self,
        pages: int,
        page: int,
        heads: int,
        width: int,
        value_width: int | None = None,
        *,
        batch: int = 1,
        dtype: Any = "float32",
        layout: str = "bhnd",
        values_are_keys: bool = False,
        target: str = "cpu",
        device: int = 0,
    ):
        memory = value_width, _type_name(dtype), _layout.is_tokens_first(layout), values_are_keys, device, target
        self._cache = _fovea.PagedCache.create(pages, page, heads, width, batch, *memory)

    def attend(
        self,
        q: Any,
        *,
        scale: float | None = None,
        causal: bool = True,
        window: int | None = None,
        sink: Any = None,
        query_lengths: Any = None,
        return_lse: bool = False,
        out: Any = None,
    ) -> Any:
        """`paged` of q [B,H,N,D] over the tokens of every sequence, of which these are the last.

        `query_lengths` are the `lengths` of `append`, if that had any.
        """
        if query_lengths is not None:
            query_lengths = check.to_readable("query_lengths", query_lengths)
        return self._call_attend(q, (scale, causal, window, sink, query_lengths), return_lse, out)

    def fork(self, sequences: Any = None) -> Self:
        """A cache of the same sequences, or of those that `sequences` [C] names, any number of
        times each and in any order: -1 is an empty one.

        It has the same pages in the same memory, where sequences share what they have in
        common.  One that another has as well is copied before it is written to, which is the
        last page of a sequence at most: neither sees what the other appends.  `free_pages` are
        those that no fork has; a fork that goes away gives its pages back.
        """
        if sequences is None:
            return super().fork()
        numbers = check.to_numpy("sequences", sequences)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ValueError(
                f"sequences: found {numbers.dtype} of shape {numbers.shape}, needed integers of shape (C,)"
            )
        if numbers.size and numbers.max() > np.iinfo(np.int64).max:
            raise ValueError(f"sequences: found {numbers.max()}, needed -1 or the number of a sequence")
        return self._own(self._cache.fork_sequences(numbers.tolist()))

    @property
    def pages(self) -> int:
        """Of all forks."""
        return self._cache.pages

    @property
    def page(self) -> int:
        """The tokens of a page."""
        return self._cache.page

    @property
    def free_pages(self) -> int:
        return self._cache.free_pages


class MultipoleCache(Cache):
    """What `fast_multipole` needs of the tokens so far: its last row, token by token.

        cache = fovea.MultipoleCache(key_weights, value_weights, group=64, heads=8)
        cache.append(k, v)                                     # the prompt
        out = fovea.fast_multipole_decode(q, k, v, cache)      # a token

    Weights, biases, `group`, `scale` and `multiplicity` are those of
    `fast_multipole`.  L levels serve `capacity` = group 2^(L+1) tokens.  Arrays of
    weights are read as long as the cache lives, and must not change.

    The cache keeps the last two groups of tokens and, of each level, sums of four
    intervals: `nbytes`, which does not grow.  A token reads at most 2 `group` tokens
    and 2 p L summaries.  Each group of tokens is added to the sums of all levels as
    the next one begins.  With `target` "gpu" weights and tokens lie on the GPU `device`,
    where `nbytes` are twice as many.  A call whose arguments are refused leaves a cache as it was.
    Calls that change one must not overlap others on it.
    """

    __slots__ = ("_cache", "_weights")
    _cache: _fovea.MultipoleCache
    #: Methods of `_cache` that return what callers expect.
    _attend, _append, _decode = "attend", "append", "decode"

    def __init__(
        self,
        key_weights: Sequence[Any],
        value_weights: Sequence[Any],
        *,
        group: int,
        heads: int,
        batch: int = 1,
        key_biases: Sequence[Any] | None = None,
        value_biases: Sequence[Any] | None = None,
        scale: float | None = None,
        multiplicity: bool = True,
        target: str = "cpu",
        device: int = 0,
    ):
        names = ("key_weights", "value_weights", "key_biases", "value_biases")
        lists = (key_weights, value_weights, key_biases, value_biases)
        # Kept, since the cache refers to them.
        self._weights = [
            None
            if arrays is None
            else [self._keep(f"{name}[{level}]", array, target) for level, array in enumerate(check.listed(name, arrays))]
            for name, arrays in zip(names, lists)
        ]
        options = scale, multiplicity, target
        self._cache = _fovea.MultipoleCache.create(device, batch, heads, group, *self._weights, *options)

    @staticmethod
    def _keep(name: str, array: Any, target: str) -> Any:
        if target == "gpu":
            return array
        # A copy that a call makes would end with it.
        array = check.to_numpy(name, array)
        return np.require(array, array.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])

    def append(self, k: Any, v: Any) -> None:
        """Adds the tokens k [B,G,N,D] and v [B,G,N,E]."""
        getattr(self._cache, self._append)(k, v, self._cache.target, out=None)

    def attend(self, q: Any, *, return_lse: bool = False, out: Any = None) -> Any:
        """The last row of `fast_multipole` over all tokens, for its q [B,H,1,D]."""
        return getattr(self._cache, self._attend)(q, return_lse, self._cache.target, out=out)

    def fork(self) -> MultipoleCache:
        """A cache of the same content, with the same weights.  Neither sees what the
        other appends from then on."""
        own = self.__class__.__new__(self.__class__)
        own._weights, own._cache = self._weights, self._cache.fork()
        return own

    def save(self, path: Any) -> None:
        """Writes the content, but no weights, to a file in the format of safetensors.
        One that is there is replaced at once."""
        self._cache.save(check.file_name(path))

    @classmethod
    def load(cls, path: Any, *arguments: Any, **options: Any) -> MultipoleCache:
        """The cache that `save` wrote, with the other arguments of its making.  A file
        that is damaged, or of a cache of other shapes, raises ValueError."""
        cache = cls(*arguments, **options)
        cache._cache.restore(check.file_name(path))
        return cache

    @property
    def length(self) -> int:
        """The tokens so far."""
        return self._cache.length

    @property
    def capacity(self) -> int:
        """The tokens that the weights are for."""
        return self._cache.capacity

    @property
    def nbytes(self) -> int:
        """Of what is kept of keys and values; it does not grow."""
        return self._cache.nbytes


def fast_multipole_decode(
    q: Any, k: Any, v: Any, cache: MultipoleCache, *, return_lse: bool = False, out: Any = None
) -> Any:
    """One token of `fast_multipole`: q [B,H,1,D], k [B,G,1,D] and v [B,G,1,E].

    Adds the token to `cache`, and returns the row [B,H,1,E] that `fast_multipole`
    has for it at the end of all tokens, under a causal mask or without: no later
    token is there.
    """
    if not isinstance(cache, MultipoleCache):
        raise ValueError(f"cache: found {type(cache).__name__}, needed a MultipoleCache")
    return getattr(cache._cache, cache._decode)(q, k, v, return_lse, cache._cache.target, out=out)
