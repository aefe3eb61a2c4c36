# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fovea as an attention of transformers.  Nothing is imported before a test runs: where
transformers is missing, all are skipped."""

import pathlib
import sys

import pytest

# Readers of real models are shared with the examples.
EXAMPLES = pathlib.Path(__file__).parents[4] / "examples"
sys.path += [str(EXAMPLES / "torch"), str(EXAMPLES / "sentences")]


@pytest.fixture(autouse=True, scope="session")
def registered():
    import fovea.torch

    fovea.torch.register_transformers()


@pytest.fixture(autouse=True)
def fallbacks(registered):
    """None are left of other tests; a test that expects some asks for them."""
    import fovea.torch

    fovea.torch.explain_fallbacks(clear=True)
    return fovea.torch.explain_fallbacks
