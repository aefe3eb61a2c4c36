# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of docs/JAX.md runs as it is printed."""

import jax
import jax.numpy as jnp
from jax_cases import random
from test_jax_compile import needs_tool
from test_page_code import read_blocks, run

import fovea.jax


def model(parameters, tokens):
    x = parameters["table"][tokens]
    heads = x.reshape(*x.shape[:2], 2, 8)
    return jax.nn.dot_product_attention(heads, heads, heads, is_causal=True).reshape(x.shape) @ parameters["head"]


@needs_tool
def test_page():
    fovea.jax.explain_fallbacks(clear=True)
    given = [
        {"jax": jax, "jnp": jnp, **{name: random("float32", 1, 2, 9, 8, seed=seed) for seed, name in enumerate("qkv")}},
        {
            "model": model, "tokens": jnp.arange(10).reshape(2, 5),
            "parameters": {"table": random("float32", 20, 16), "head": random("float32", 16, 20)},
        },
        {},
        {},
    ]  # fmt: skip
    run("docs/JAX.md", read_blocks("docs/JAX.md"), given)
    (fallback,) = fovea.jax.explain_fallbacks(clear=True)
    assert fallback.caller == "fovea.jax.compile(whiten)"
