# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of tokens that take and return tensors."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from .. import _arguments as check
from .. import _caches as arrays
from .._documented import documented
from .._trace import trace_score
from ._tape import check_tensor, refuse_gradients

__all__ = ["KVCache", "MultipoleCache", "PagedCache", "fast_multipole_decode"]

#: Compiled functions do not see what changes within an object.
_eager = torch.compiler.disable(reason="caches of Fovea change in place, outside of graphs", recursive=True)


def _check(name: str, **values: Any) -> None:
    refuse_gradients(name, {key: each for key, each in values.items() if isinstance(each, Tensor)})


def _place(device: Any, target: str | None) -> dict[str, Any]:
    """What `fovea` calls the place of a cache."""
    if device is None:
        device = "cuda" if target == "gpu" else "cpu"
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(f"device: found {device!r}, needed one of PyTorch, such as 'cpu' or 'cuda:0'") from None
    if place.type == "cpu" and target != "gpu":
        return {"target": target or "cpu"}
    if place.type != "cuda":
        raise ValueError(f"device: found {str(place)!r}, needed {'' if target == 'gpu' else 'a CPU or '}an NVIDIA GPU, such as 'cuda:0'")
    if target not in (None, "gpu"):
        raise ValueError(f"target: found {target!r}, needed 'gpu' for the device {str(place)!r}")
    current = torch.cuda.current_device() if place.index is None and torch.cuda.is_available() else 0
    return {"target": "gpu", "device": current if place.index is None else place.index}


def _find_device(cache: Any) -> torch.device:
    return torch.device("cpu") if cache.device < 0 else torch.device("cuda", cache.device)


class _TokenCache(arrays.TokenCache):
    """What caches of keys and values have in common."""

    __slots__ = ()
    _attend, _append = "attend_tensor", "append_tensor"

    @classmethod
    @documented(arrays.TokenCache.load)
    def load(cls, path: Any, *, device: Any = None, target: str | None = None) -> Self:
        return super().load(path, **_place(device, target))

    @property
    def device(self) -> torch.device:
        """Where the memory is, and all tensors of calls but lengths have to be."""
        return _find_device(self._cache)

    @_eager
    @documented(arrays.TokenCache.append)
    def append(self, k: Tensor, v: Tensor | None = None, *, lengths: Tensor | None = None) -> None:
        _check(f"{type(self).__name__}.append", k=k, v=v)
        super().append(k, v, lengths=lengths)

    def _call_attend(self, q: Tensor, options: tuple[Any, ...], return_lse: bool, out: Any) -> Any:
        if out is None and self._cache.tokens_first and q.dim() == 4:
            place = q.new_empty(*q.shape[:3], self._cache.value_width)
            out = (place, None) if return_lse else place
        return super()._call_attend(q, options, return_lse, out)

    @property
    def lengths(self) -> Tensor:
        """The tokens of each sequence, int64 [B]."""
        return torch.from_numpy(super().lengths)


def _type_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


class KVCache(_TokenCache, arrays.KVCache):
    __doc__ = arrays.KVCache.__doc__
    __slots__ = ()

    @documented(arrays.KVCache.__init__)
    def __init__(
        self, *sizes: int, dtype: Any = torch.float32, device: Any = None, target: str | None = None, **options: Any
    ):
        options.update(_place(device, target))
        super().__init__(*sizes, dtype=_type_name(dtype), **options)

    @_eager
    @documented(arrays.KVCache.attend)
    def attend(self, q: Tensor, *, score: Any = None, **options: Any) -> Any:
        score = trace_score(score, q)
        _check("KVCache.attend", q=q, **options)
        refuse_gradients("KVCache.attend", {"captures": score.captures or ()})
        return super().attend(q, score=score, **options)


class PagedCache(_TokenCache, arrays.PagedCache):
    __doc__ = arrays.PagedCache.__doc__
    __slots__ = ()

    @documented(arrays.PagedCache.__init__)
    def __init__(
        self, *sizes: int, dtype: Any = torch.float32, device: Any = None, target: str | None = None, **options: Any
    ):
        options.update(_place(device, target))
        super().__init__(*sizes, dtype=_type_name(dtype), **options)

    @_eager
    @documented(arrays.PagedCache.attend)
    def attend(self, q: Tensor, **options: Any) -> Any:
        _check("PagedCache.attend", q=q, **options)
        return super().attend(q, **options)


class MultipoleCache(arrays.MultipoleCache):
    __doc__ = arrays.MultipoleCache.__doc__
    __slots__ = ()
    _attend, _append, _decode = "attend_tensor", "append_tensor", "decode_tensor"

    @documented(arrays.MultipoleCache.__init__)
    def __init__(self, key_weights: Any, value_weights: Any, *, device: Any = None, target: str | None = None, **options: Any):
        for number, weight in enumerate(check.listed("key_weights", key_weights)):
            check_tensor(f"key_weights[{number}]", weight)
        if device is None and target is None and key_weights:
            device = key_weights[0].device
        super().__init__(key_weights, value_weights, **options, **_place(device, target))

    @staticmethod
    def _keep(name: str, array: Any, target: str) -> Any:
        check_tensor(name, array)
        array = array.detach().contiguous()
        # A copy that a call makes would end with it.
        return array.clone() if array.data_ptr() % array.element_size() else array

    @property
    def device(self) -> torch.device:
        """Where the memory is, and all tensors of calls have to be: by default that of weights."""
        return _find_device(self._cache)

    @_eager
    @documented(arrays.MultipoleCache.append)
    def append(self, k: Tensor, v: Tensor) -> None:
        _check("MultipoleCache.append", k=k, v=v)
        super().append(k, v)

    @_eager
    @documented(arrays.MultipoleCache.attend)
    def attend(self, q: Tensor, *, return_lse: bool = False, out: Any = None) -> Any:
        _check("MultipoleCache.attend", q=q)
        return super().attend(q, return_lse=return_lse, out=out)


@_eager
@documented(arrays.fast_multipole_decode)
def fast_multipole_decode(
    q: Tensor, k: Tensor, v: Tensor, cache: MultipoleCache, *, return_lse: bool = False, out: Any = None
) -> Any:
    if not isinstance(cache, MultipoleCache):
        raise ValueError(f"cache: found {type(cache).__name__}, needed a fovea.torch.MultipoleCache")
    _check("fast_multipole_decode", q=q, k=k, v=v)
    return arrays.fast_multipole_decode(q, k, v, cache, return_lse=return_lse, out=out)
