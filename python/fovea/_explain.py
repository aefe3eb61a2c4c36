# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels read, cost and become."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _arguments, _fovea

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """What `explain` says of each kernel, in the order in which they first ran."""

    #: To read.
    text: str
    #: A page that needs no other file, with pictures to zoom into, tiles, and the IR by pass.
    html: str
    #: For each kernel what `fovea-explain --emit=json` writes, parsed.
    json: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.text


def _shape(argument: Any) -> list[int]:
    return [int(extent) for extent in getattr(argument, "shape", ())]


def _join(pages: list[str]) -> str:
    """A page with pages in it."""
    if len(pages) == 1:
        return pages[0]
    frame = '<iframe style="width: 100%; height: 95vh; border: 0" srcdoc="{}"></iframe>'
    body = "\n".join(frame.format(html.escape(page)) for page in pages)
    head = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n<body>\n{body}\n</body>\n</html>\n'


def explain(
    kernel_or_call: _fovea.Kernel | Callable[..., Any],
    *arguments: Any,
    batch: int = 0,
    head: int = 0,
    **options: Any,
) -> Explanation:
    """Says which keys every query reads and how often, what that costs, and what passes decided.

        print(fovea.explain(fovea.dense, q, k, v, causal=True))
        pathlib.Path("page.html").write_text(fovea.explain(kernel, q, k, v).html)

    `kernel_or_call` is a kernel, as `fovea.compile` returns it, which is not run: only
    shapes matter, and arrays that decide which keys are read.  Or it is a function, which is called with the arguments and
    options: explained is each kernel that it runs in this thread, for the shapes that it runs it on first.

    A key that counts twice, or never although the mask admits it, is reported, and so is
    one that is read ahead of a causal mask.  Lists, segments, lengths and masks are drawn as the
    arrays say, of batch entry `batch` and query head `head` where these differ; what is not known, such as
    arrays on a GPU, is named.  Where a kernel computes what decides, such as lists by attn.top_k, that part of it is run on the
    arrays that it is explained with, which are NumPy's.
    """
    batch, head = _arguments.integer("batch", batch, 0), _arguments.integer("head", head, 0)
    if isinstance(kernel_or_call, _fovea.Kernel):
        if options:
            raise ValueError(f"options: found {', '.join(options)}, needed none for a kernel")
        same_as = [next(at for at, each in enumerate(arguments) if each is argument) for argument in arguments]
        found = [(kernel_or_call, [_shape(argument) for argument in arguments], list(arguments), same_as)]
    elif callable(kernel_or_call):
        found = _fovea.record_kernels(lambda: kernel_or_call(*arguments, **options))
        if not found:
            raise ValueError("kernel_or_call: found a function that runs no kernel in this thread")
    else:
        raise ValueError(
            f"kernel_or_call: found {type(kernel_or_call).__name__}, needed a kernel or a function"
        )
    parts = [_fovea.explain(*each, batch, head) for each in found]
    texts, pages, objects = zip(*parts)
    return Explanation("\n".join(texts), _join(list(pages)), [json.loads(x) for x in objects])
