# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts of functions that exist for arrays of several frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def documented(function: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """With the text of the function of the same name on arrays."""

    def document(other: _Function) -> _Function:
        other.__doc__ = function.__doc__
        return other

    return document
