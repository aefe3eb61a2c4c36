# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs: chains of operations that models use.

`of_torch` and `of_jax` have the operations, each in a function that `draw.kind` adds
to those that are drawn from, and a `Trial` that compiles a program and compares what
it computes with its framework.
"""
