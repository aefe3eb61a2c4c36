# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiling IR, the cache of kernels, and where kernels run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _fovea

__all__ = [
    "TARGETS",
    "clear_cache",
    "compile",
    "gpu_stream",
    "num_threads",
    "set_num_threads",
    "set_shapes",
    "shapes",
]

#: The targets that kernels can be compiled for.
TARGETS: tuple[str, ...] = _fovea.TARGETS


def check_target(target: str) -> None:
    if not isinstance(target, str) or target not in TARGETS:
        *names, last = map(repr, TARGETS)
        raise ValueError(f"target: found {target!r}, needed {', '.join(names)} or {last}")


def compile(
    text: str, *, target: str = "cpu", cpu: str = "native", entry: str | None = None
) -> _fovea.Kernel:
    """Compiles one function of a module in MLIR's textual form.

    `target` is "cpu" (parallel vector code), "reference" (plain loops that
    compute in float64), "gpu" (kernels for an NVIDIA GPU) or "gpu-sim" (the same
    kernels, run by an emulator on the CPU).  `cpu` is the processor to generate code for, as LLVM
    names it; "native" is this machine.  `entry` names the function; by default
    it is the first public one with a body.

    The result is called with one array (or Python number) for each argument
    and returns an array, a tuple of arrays, or None.  Arrays that are not
    contiguous, not aligned or of the other byte order are copied first.  The
    same text is compiled only once.

    Raises FoveaError with the diagnostics of the compiler.
    """
    if not isinstance(text, str):
        raise ValueError(f"text: found {type(text).__name__}, needed a string with IR")
    if not isinstance(cpu, str):
        raise ValueError(f"cpu: found {cpu!r}, needed the name of a processor or 'native'")
    if entry is not None and not isinstance(entry, str):
        raise ValueError(f"entry: found {entry!r}, needed the name of a function")
    check_target(target)
    return _fovea.compile(text, target, cpu, entry)


def clear_cache() -> None:
    """Forgets all compiled kernels and frees memory that is kept for reuse.

    Kernels that are still referenced stay valid, and those on disk stay there.
    """
    _fovea.clear_cache()


def set_num_threads(count: int) -> None:
    """Sets how many threads run a kernel, the calling one included.

    0 restores the default: the environment variable FOVEA_NUM_THREADS or, where
    that is not set, the number of processors the process may use.  Results do
    not depend on it.
    """
    try:
        _fovea.set_num_threads(count)
    except TypeError:
        raise ValueError(
            f"count: found {count!r}, needed a number of threads, or 0 for the default"
        ) from None


def num_threads() -> int:
    """How many threads run a kernel."""
    return _fovea.num_threads()


def set_shapes(shapes: str) -> None:
    """Sets whether functions compile once for all lengths, in the whole process.

    A length is a batch size or a number of tokens.  "auto", the default, compiles once for all
    lengths wherever that kernel is as fast as one for a single length; "static" compiles for
    each length, "dynamic" once for all wherever there is such a kernel.  docs/Embedding.md says
    for which functions that is.  Calls of all threads from now on follow it.
    """
    if not isinstance(shapes, str):
        raise ValueError(f"shapes: found {shapes!r}, needed 'auto', 'static' or 'dynamic'")
    _fovea.set_shapes(shapes)


def shapes() -> str:
    """Whether functions compile once for all lengths, as `set_shapes` takes it."""
    return _fovea.shapes()


@contextmanager
def gpu_stream(stream: int) -> Iterator[None]:
    """Kernels that this thread calls meanwhile run on the CUDA stream `stream`.

    A stream is its address as an integer, as `torch.cuda.Stream.cuda_stream` and
    `cupy.cuda.Stream.ptr` give it; 0, and 1 too, is the legacy default stream.  A call with arrays on the GPU only queues its
    work and returns; whoever reads the results does so on this stream or waits
    for it.  Without a stream, calls return when the work is done.
    """
    if not isinstance(stream, int) or isinstance(stream, bool) or not 0 <= stream < 1 << 63:
        raise ValueError(
            f"stream: found {stream!r}, needed the address of a CUDA stream, 0 for the default one"
        )
    before = _fovea.get_stream()
    # The runtime takes 0 for a stream of its own.
    _fovea.set_stream(stream or 1)
    try:
        yield
    finally:
        _fovea.set_stream(before)
