# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of tokens that take and return arrays of JAX.  They change in place, which programs of XLA do
not see: `jax.jit` and other transformations are refused."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _caches as arrays
from .._documented import documented
from .._trace import trace_score

__all__ = ["KVCache", "MultipoleCache", "PagedCache", "fast_multipole_decode"]


def _check(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, jax.core.Tracer):
            raise ValueError(
                f"{name}: found an array that is traced, needed one with values: "
                "caches change in place, which jax.jit and other transformations do not see"
            )


def _give(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(_give, found))
    return jnp.asarray(found) if isinstance(found, np.ndarray) else jnp.from_dlpack(found)


def _place(device: Any, target: str | None) -> dict[str, Any]:
    """What `fovea` calls the place of a cache."""
    if device is None:
        return {"target": target or "cpu"}
    if getattr(device, "platform", None) == "cpu" and target != "gpu":
        return {"target": target or "cpu"}
    if getattr(device, "platform", None) != "gpu" or target not in (None, "gpu"):
        raise ValueError(f"device: found {device!r}, needed one of jax.devices('gpu') for target 'gpu', or of jax.devices('cpu')")
    return {"target": "gpu", "device": device.local_hardware_id}


class _TokenCache(arrays.TokenCache):
    """What caches of keys and values have in common."""

    __slots__ = ()

    @documented(arrays.TokenCache.append)
    def append(self, k: Any, v: Any = None, *, lengths: Any = None) -> None:
        _check(k=k, v=v, lengths=lengths)
        super().append(k, v, lengths=lengths)

    @classmethod
    @documented(arrays.TokenCache.load)
    def load(cls, path: Any, *, device: Any = None, target: str | None = None) -> Self:
        return super().load(path, **_place(device, target))

    def _call_attend(self, q: Any, options: tuple[Any, ...], return_lse: bool, out: Any) -> Any:
        if not self._cache.tokens_first or self._cache.target != "gpu" or out is not None:
            return _give(super()._call_attend(q, options, return_lse, out))
        found = _give(self._cache.attend(self._heads_first("q", q), *options, return_lse, "gpu", out=None))
        return (found[0].swapaxes(1, 2), found[1]) if return_lse else found.swapaxes(1, 2)


class KVCache(_TokenCache, arrays.KVCache):
    __doc__ = arrays.KVCache.__doc__
    __slots__ = ()

    @documented(arrays.KVCache.__init__)
    def __init__(self, *sizes: int, device: Any = None, target: str | None = None, **options: Any):
        options.update(_place(device, target))
        super().__init__(*sizes, **options)

    @documented(arrays.KVCache.attend)
    def attend(self, q: Any, *, score: Any = None, **options: Any) -> Any:
        score = trace_score(score, q)
        _check(q=q, **options, **{f"captures[{at}]": each for at, each in enumerate(score.captures or ())})
        return super().attend(q, score=score, **options)


class PagedCache(_TokenCache, arrays.PagedCache):
    __doc__ = arrays.PagedCache.__doc__
    __slots__ = ()

    @documented(arrays.PagedCache.__init__)
    def __init__(self, *sizes: int, device: Any = None, target: str | None = None, **options: Any):
        options.update(_place(device, target))
        super().__init__(*sizes, **options)

    @documented(arrays.PagedCache.attend)
    def attend(self, q: Any, **options: Any) -> Any:
        _check(q=q, **options)
        return super().attend(q, **options)


class MultipoleCache(arrays.MultipoleCache):
    __doc__ = arrays.MultipoleCache.__doc__
    __slots__ = ()

    @documented(arrays.MultipoleCache.__init__)
    def __init__(self, key_weights: Any, value_weights: Any, *, device: Any = None, target: str | None = None, **options: Any):
        if device is None and target is None and len(key_weights) and isinstance(key_weights[0], jax.Array):
            device, = key_weights[0].devices()
        super().__init__(key_weights, value_weights, **options, **_place(device, target))

    @documented(arrays.MultipoleCache.append)
    def append(self, k: Any, v: Any) -> None:
        _check(k=k, v=v)
        super().append(k, v)

    @documented(arrays.MultipoleCache.attend)
    def attend(self, q: Any, *, return_lse: bool = False, out: Any = None) -> Any:
        _check(q=q)
        return _give(super().attend(q, return_lse=return_lse, out=out))


@documented(arrays.fast_multipole_decode)
def fast_multipole_decode(q: Any, k: Any, v: Any, cache: Any, *, return_lse: bool = False) -> Any:
    if not isinstance(cache, MultipoleCache):
        raise ValueError(f"cache: found {type(cache).__name__}, needed a fovea.jax.MultipoleCache")
    _check(q=q, k=k, v=v)
    return _give(arrays.fast_multipole_decode(q, k, v, cache, return_lse=return_lse))
