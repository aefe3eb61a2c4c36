# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NumPy float64 references for the soft-max patterns.

Written from the definitions alone, so that they can disagree with the
compiler.  They favour being obviously right over being fast: `dense`,
`fast_multipole` and `fast_multipole_linear` visit every (query, key) entry.
`fast_multipole_blocked` is the exception: it does the same sums in time linear
in N, for checks at lengths the others cannot reach, and is itself tested
against `fast_multipole`.

Arrays may have any floating type (bfloat16 from ml_dtypes included); all
arithmetic and all results are float64 (`fast_multipole_blocked`: `dtype`).

Non-finite numbers.  Every query that reads a key with a NaN or an infinity
gets a NaN row; every query that reads a value with one gets a NaN in that
column.  A query reads an entry that its mask admits and whose bias and log
weight are not -inf.  Queries that do not read it are unaffected.  A
non-finite query makes its own row NaN.  The same goes for gradients, and for
whatever else is read or not: entries that a mask drops, convolutions with a
score of -inf, absent tokens of a summary, padding of a tree.
"""

from ._backward import *
from ._conv import *
from ._dense import *
from ._hierarchical import *
from ._hierarchical_blocked import *
from ._low_rank import *
from ._pool import *
from ._quantized import *
from ._stream import *
from ._tree import *
from ._vq import *
