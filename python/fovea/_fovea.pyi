# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled part of the package."""

from collections.abc import Sequence
from typing import Any

import numpy as np

TARGETS: tuple[str, ...]
VERSION: str

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
    def cpu(self) -> str:
        """The CPU that the code was generated for, as LLVM names it."""
    @property
    def diagnostics(self) -> str:
        """Warnings and remarks of the compilation."""
    @property
    def compile_seconds(self) -> float:
        """How long the compilation took."""

class Memory:
    """The memory of a result, which its array holds."""

# What the functions of these names in the package take, by position, `target` last.
def codebook_update(*arguments: Any) -> Any: ...
def commitment_loss(*arguments: Any) -> Any: ...
def commitment_loss_backward(*arguments: Any) -> Any: ...
def conv(*arguments: Any) -> Any: ...
def conv_apply(*arguments: Any) -> Any: ...
def conv_apply_backward(*arguments: Any) -> Any: ...
def conv_backward(*arguments: Any) -> Any: ...
def conv_recover(*arguments: Any) -> Any: ...
def conv_recover_backward(*arguments: Any) -> Any: ...
def dense(*arguments: Any) -> Any: ...
def dense_backward(*arguments: Any) -> Any: ...
def fast_multipole(*arguments: Any) -> Any: ...
def fast_multipole_backward(*arguments: Any) -> Any: ...
def fast_multipole_linear(*arguments: Any) -> Any: ...
def fast_multipole_linear_backward(*arguments: Any) -> Any: ...
def low_rank(*arguments: Any) -> Any: ...
def low_rank_backward(*arguments: Any) -> Any: ...
def polynomial_features(*arguments: Any) -> Any: ...
def polynomial_features_backward(*arguments: Any) -> Any: ...
def quantize(*arguments: Any) -> Any: ...
def rope(*arguments: Any) -> Any: ...
def rope_backward(*arguments: Any) -> Any: ...
def tree_build(*arguments: Any) -> Any: ...
def tree_build_backward(*arguments: Any) -> Any: ...
def tree_check(*arguments: Any) -> Any: ...
def tree_fetch(*arguments: Any) -> Any: ...
def tree_fetch_backward(*arguments: Any) -> Any: ...
def tree_materialize(*arguments: Any) -> Any: ...
def tree_materialize_backward(*arguments: Any) -> Any: ...
def tree_score(*arguments: Any) -> Any: ...
def tree_select(*arguments: Any) -> Any: ...
def tree_update(*arguments: Any) -> Any: ...
def tree_update_backward(*arguments: Any) -> Any: ...
def vq(*arguments: Any) -> Any: ...
def vq_backward(*arguments: Any) -> Any: ...
def vq_decode(*arguments: Any) -> Any: ...
def compile(text: str, target: str, cpu: str, entry: str | None) -> Kernel:
    """Compiles a function, or finds it in the cache of the process."""

def describe(name: str, array: Any) -> tuple[str, tuple[int, ...]]:
    """Element type in IR and shape of an array; `name` is for the error."""

def bfloat16() -> np.dtype[Any]:
    """The NumPy type bfloat16 of the package ml_dtypes."""

def set_num_threads(count: int) -> None:
    """Sets how many threads run a kernel; 0 is the default."""

def num_threads() -> int:
    """How many threads run a kernel."""

def set_stream(stream: int | None) -> None:
    """Chooses the CUDA stream of kernels that this thread calls."""

def stream() -> int | None:
    """The stream that was chosen."""

def clear_cache() -> None:
    """Forgets all kernels and frees memory that is kept for reuse."""

def cache_statistics() -> tuple[int, int, int]:
    """Kernels in the cache of the process, its hits and its misses."""
