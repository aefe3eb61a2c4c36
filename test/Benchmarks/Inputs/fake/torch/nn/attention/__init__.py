# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import contextlib
import types

# One back end less than the benchmark asks for.
SDPBackend = types.SimpleNamespace(FLASH_ATTENTION=0, EFFICIENT_ATTENTION=1)


@contextlib.contextmanager
def sdpa_kernel(backend):
    if backend == SDPBackend.EFFICIENT_ATTENTION:
        raise RuntimeError("the rehearsal has no such back end")
    yield
