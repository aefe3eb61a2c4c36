# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes functions in IR, statement by statement: what the builders here share."""


def tensor(*shape, element="f32"):
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def element_of(type):
    """The element type of a tensor type."""
    return type[type.index("<") + 1 : -1].split("x")[-1]


class Writer:
    """Statements of one function; every method returns the name of its result.

    `element` is the type of numbers where nothing else is said."""

    def __init__(self, element="f32"):
        self.element, self.lines, self.count = element, [], 0

    def tensor(self, *shape):
        return tensor(*shape, element=self.element)

    def op(self, text, results=1):
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"{name}{f':{results}' if results > 1 else ''} = {text}")
        return name if results == 1 else [f"{name}#{i}" for i in range(results)]

    def empty(self, *shape, element=None):
        return self.op(f"tensor.empty() : {tensor(*shape, element=element or self.element)}")

    def filled(self, value, *shape):
        t = self.tensor(*shape)
        number, init = self.op(f"arith.constant {value} : {self.element}"), self.empty(*shape)
        return self.op(f"linalg.fill ins({number} : {self.element}) outs({init} : {t}) -> {t}")

    def zeros(self, *shape):
        return self.filled("0.0", *shape)

    def generic(self, inputs, maps, out, out_map, iterators, body, init=None):
        """inputs: (name, type); out: type. The body is lines over %i0, %i1, ..., %acc."""
        dims = ", ".join(f"d{i}" for i in range(len(iterators)))
        all_maps = ", ".join(f"affine_map<({dims}) -> ({m})>" for m in [*maps, out_map])
        names, types = ", ".join(n for n, _ in inputs), ", ".join(t for _, t in inputs)
        shape = out[out.index("<") + 1 : -1].split("x")[:-1]
        init = init or self.empty(*shape, element=element_of(out))
        arguments = ", ".join(f"%i{i}: {element_of(t)}" for i, (_, t) in enumerate(inputs))
        kinds = ", ".join(f'"{kind}"' for kind in iterators)
        return self.op(
            f"linalg.generic {{indexing_maps = [{all_maps}], iterator_types = [{kinds}]}}\n"
            f"      ins({names} : {types}) outs({init} : {out}) {{\n"
            f"    ^bb0({arguments}, %acc: {element_of(out)}):\n      " + "\n      ".join(body)
            + f"\n    }} -> {out}"
        )  # fmt: skip

    def named(self, op, a, b, *shape):
        """Element by element, as an operation with a name: it stays a pass of its
        own, where a generic one might be computed again for every product."""
        t, init = self.tensor(*shape), self.empty(*shape)
        return self.op(f"linalg.{op} ins({a}, {b} : {t}, {t}) outs({init} : {t}) -> {t}")

    def product(self, x, weight, batch, n, ins, outs):
        """x [B,n,ins] times weight [ins,outs]."""
        t = self.tensor(batch, n, outs)
        maps = ", ".join(
            f"affine_map<(b, i, o, k) -> ({m})>" for m in ("b, i, k", "k, o", "b, i, o")
        )
        return self.op(
            f"linalg.contract indexing_maps = [{maps}] "
            f"ins({x}, {weight} : {self.tensor(batch, n, ins)}, {self.tensor(ins, outs)}) "
            f"outs({self.zeros(batch, n, outs)} : {t}) -> {t}"
        )

    def split_heads(self, x, batch, n, heads, width):
        """[B,n,H D] as [B,H,n,D]."""
        cut = self.tensor(batch, n, heads, width)
        split = self.op(
            f"tensor.expand_shape {x} [[0], [1], [2, 3]] output_shape "
            f"[{batch}, {n}, {heads}, {width}] : {self.tensor(batch, n, heads * width)} into {cut}"
        )
        t, init = self.tensor(batch, heads, n, width), self.empty(batch, heads, n, width)
        return self.op(f"linalg.transpose ins({split} : {cut}) outs({init} : {t}) permutation = [0, 2, 1, 3]")

    def merge_heads(self, x, batch, n, heads, width):
        """The inverse of `split_heads`."""
        t, cut = self.tensor(batch, heads, n, width), self.tensor(batch, n, heads, width)
        init = self.empty(batch, n, heads, width)
        back = self.op(f"linalg.transpose ins({x} : {t}) outs({init} : {cut}) permutation = [0, 2, 1, 3]")
        return self.op(
            f"tensor.collapse_shape {back} [[0], [1], [2, 3]] : {cut} into {self.tensor(batch, n, heads * width)}"
        )

    def function(self, name, arguments, results):
        """The text of the function. `arguments` and `results` are (name, type)."""
        parameters = ", ".join(f"%{n}: {t}" for n, t in arguments)
        types = ", ".join(t for _, t in results)
        lines = "".join(f"  {line}\n" for line in self.lines)
        names = ", ".join(n for n, _ in results)
        return f"func.func @{name}({parameters}) -> ({types}) {{\n{lines}  return {names} : {types}\n}}\n"
