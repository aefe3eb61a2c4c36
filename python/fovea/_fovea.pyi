# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled part of the package."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")

TARGETS: tuple[str, ...]
VERSION: str

#: The same functions, which return tensors of the class of their arguments.
tensors: Any

class FoveaError(RuntimeError):
    """A failure of the compiler, with its diagnostics, or of a running kernel."""

class Kernel:
    """A compiled function, as `fovea.compile` returns it: arrays in, arrays out."""

    def __call__(self, *inputs: Any) -> Any:
        """Runs the kernel; other threads of Python go on meanwhile.

        Returns an array, a tuple of arrays for several results, or None.
        Raises ValueError for inputs that do not fit the signature, FoveaError
        when the kernel fails.
        """
    def vjp(
        self, arguments: Sequence[int] | None = None, primal_results: bool = False
    ) -> Kernel:
        """Compiles the vector-Jacobian product, for the same target.

        The result is called with the arguments of this kernel and then one
        cotangent for each floating-point result. It returns the gradients of the
        sum of the results, weighted by the cotangents, with respect to the
        arguments with the numbers `arguments`, or to all floating-point ones; with
        `primal_results`, the results of this kernel come first.

        Raises FoveaError where an operation has no gradient, with its name.
        """
    @property
    def name(self) -> str:
        """Name of the function, without '@'."""
    @property
    def signature(self) -> str:
        """Names and types of the arguments, and types of the results."""
    @property
    def text(self) -> str:
        """The module that it was compiled from."""
    @property
    def cpu(self) -> str:
        """The CPU that the code was generated for, as LLVM names it."""
    @property
    def diagnostics(self) -> str:
        """Warnings and remarks of the compilation."""
    @property
    def compile_seconds(self) -> float:
        """How long the compilation took."""

class KVCache:
    """Keys and values of tokens; methods take what those of `fovea.KVCache` do, `target` last."""

    @staticmethod
    def create(*arguments: Any) -> KVCache: ...
    @staticmethod
    def load(path: str, device: int, target: str) -> KVCache: ...
    def append(self, *arguments: Any, out: None) -> None: ...
    def append_tensor(self, *arguments: Any, out: None) -> None: ...
    def attend(self, *arguments: Any, out: Any) -> Any: ...
    def attend_tensor(self, *arguments: Any, out: Any) -> Any: ...
    def truncate(self, *arguments: Any) -> None: ...
    def truncate_each(self, *arguments: Any) -> None: ...
    def fork(self) -> KVCache: ...
    def save(self, path: str) -> None: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def capacity(self) -> int: ...
    @property
    def value_width(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def tokens_first(self) -> bool: ...
    @property
    def target(self) -> str: ...
    @property
    def device(self) -> int: ...

class PagedCache:
    """Keys and values of tokens; methods take what those of `fovea.PagedCache` do, `target` last."""

    @staticmethod
    def create(*arguments: Any) -> PagedCache: ...
    @staticmethod
    def load(path: str, device: int, target: str) -> PagedCache: ...
    def append(self, *arguments: Any, out: None) -> None: ...
    def append_tensor(self, *arguments: Any, out: None) -> None: ...
    def attend(self, *arguments: Any, out: Any) -> Any: ...
    def attend_tensor(self, *arguments: Any, out: Any) -> Any: ...
    def truncate(self, *arguments: Any) -> None: ...
    def truncate_each(self, *arguments: Any) -> None: ...
    def fork(self) -> PagedCache: ...
    def fork_sequences(self, sequences: list[int]) -> PagedCache: ...
    def save(self, path: str) -> None: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def pages(self) -> int: ...
    @property
    def page(self) -> int: ...
    @property
    def free_pages(self) -> int: ...
    @property
    def value_width(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def tokens_first(self) -> bool: ...
    @property
    def target(self) -> str: ...
    @property
    def device(self) -> int: ...

class MultipoleCache:
    """What fast multipole attention keeps; methods take what those of `fovea.MultipoleCache` do, `target` last."""

    @staticmethod
    def create(*arguments: Any) -> MultipoleCache: ...
    def append(self, *arguments: Any, out: None) -> None: ...
    def append_tensor(self, *arguments: Any, out: None) -> None: ...
    def attend(self, *arguments: Any, out: Any) -> Any: ...
    def attend_tensor(self, *arguments: Any, out: Any) -> Any: ...
    def decode(self, *arguments: Any, out: Any) -> Any: ...
    def decode_tensor(self, *arguments: Any, out: Any) -> Any: ...
    def fork(self) -> MultipoleCache: ...
    def save(self, path: str) -> None: ...
    def restore(self, path: str) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def target(self) -> str: ...
    @property
    def device(self) -> int: ...

class Memory:
    """The memory of a result, which its array holds."""

class ForeignArray:
    """Memory of a caller from outside of Python."""

class Shortcut:
    """Tells which calls a dispatcher need not see."""

    def __init__(
        self,
        classes: tuple[type, ...],
        watchers: tuple[Callable[[], Any], ...],
        is_negated: Callable[[Any], bool],
        is_taping: Callable[[], bool],
        inputs: Sequence[tuple[int, bool]],
    ) -> None: ...
    def look(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """What a node of autograd takes for a call with these values: a tuple of them with the
        number of tensors in place of tensors, and these.  Nothing where it needs no node, and
        None where it has to go through the dispatcher."""

def set_abstract_array(type: type) -> None:
    """Sets the class of arrays whose values are not known; calls on them give others."""

def xla_end() -> None:
    """Waits for calls of XLA that run, and refuses others."""

def xla_handlers() -> dict[str, Any]:
    """What computes calls of XLA, by the name of its platform, in capsules."""

def record_kernels(call: Callable[[], Any]) -> list[tuple[Kernel, list[list[int]], list[Any], list[int]]]:
    """The kernels that a call runs, with the shapes of the arguments of their first runs, those of integers, and for each
    argument the number of the first one that is the same array."""

def explain(
    kernel: Kernel, shapes: list[list[int]], data: list[Any], same_as: list[int], batch: int = 0, head: int = 0
) -> tuple[str, str, str]:
    """A kernel explained as text, as a page and as JSON, of a batch entry and a head, for arguments that are not None.
    `same_as` may be empty: no two arguments are one array."""

def probe_attention(text: str, entry: str | None = None) -> tuple[str, list[tuple[str, str, bool, float]]]:
    """A module whose function also returns query, key and value of its dense attention, and for each of these its place,
    why it is left out, whether it is causal, and its scale."""

def count_flops(kernel: Kernel, shapes: list[list[int]]) -> float | None:
    """Useful floating-point operations of a kernel, where they are known."""

def count_described_flops(call: Callable[[], Any]) -> float:
    """The same of the functions that `call` calls with abstract arrays, which no kernel is compiled for."""

def run_tool(name: str, arguments: list[str]) -> int:
    """Runs one of the command-line tools in this process, and returns its status."""

def __getattr__(name: str) -> Callable[..., Any]:
    """The functions of the package: they take what those of the same names do, by
    position, `target` last, but for `out` or `gradients`."""

def compile(text: str, target: str, cpu: str, entry: str | None) -> Kernel:
    """Compiles a function, or finds it in the cache of the process."""

def save_vq_state(state: Any, path: str, target: str) -> None:
    """Writes a state of `vq` to a file."""

def load_vq_state(path: str, target: str) -> tuple[Any, ...]:
    """The arrays of a state from a file."""

def describe(name: str, array: Any) -> tuple[str, tuple[int, ...]]:
    """Element type in IR and shape of an array; `name` is for the error."""

def bfloat16() -> np.dtype[Any]:
    """The NumPy type bfloat16 of the package ml_dtypes."""

def set_num_threads(count: int) -> None:
    """Sets how many threads run a kernel; 0 is the default."""

def num_threads() -> int:
    """How many threads run a kernel."""

def set_shapes(shapes: str) -> None:
    """Chooses whether functions compile for each length."""

def shapes() -> str:
    """What calls of this thread follow."""

def call_with_shapes(shapes: str, call: Callable[[], _T]) -> _T:
    """What a call returns, with another choice for calls of this thread meanwhile."""

def set_stream(stream: int | None) -> None:
    """Chooses the CUDA stream of kernels that this thread calls."""

def get_stream() -> int | None:
    """The stream that was chosen."""

def clear_cache() -> None:
    """Forgets all kernels and frees memory that is kept for reuse."""

def cache_statistics() -> tuple[int, int, int, int]:
    """Kernels in the cache of the process, its hits, its misses, and those of them found on disk."""
