# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of functions that hold one operation."""

import math

BYTES = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2, "i32": 4, "i64": 8, "i1": 1}


def tensor(shape, element="f32"):
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def operand(name, *shape, element="f32"):
    return name, shape, element


def _num_bytes(operands):
    return sum(math.prod(shape) * BYTES[element] for _, shape, element in operands)


def _listed(operands):
    names = ", ".join(f"%{name}" for name, _, _ in operands)
    return f"({names} : {', '.join(tensor(shape, element) for _, shape, element in operands)})"


class Kernel:
    """@run with one operation of the dialect. `inputs` and `outputs` are lists of a
    keyword and its operands; outputs that are no inputs are new tensors."""

    def __init__(self, op, inputs, outputs, attributes=""):
        self.op, self.inputs, self.outputs = op, [i for i in inputs if i[1]], outputs
        self.attributes = f" {{{attributes}}}" if attributes else ""
        self.in_place = ()

    def arguments(self):
        return [o for _, group in self.inputs for o in group] + list(self.in_place)

    def results(self):
        return [o for _, group in self.outputs for o in group]

    def write_in_place(self):
        """Takes the outputs as arguments, in the order of results."""
        self.in_place = self.results()
        return self

    def body(self, name="result"):
        """The operation and the tensors that it writes to; it has this name."""
        results = self.results()
        empty = "" if self.in_place else "".join(
            f"  %{n} = tensor.empty() : {tensor(s, e)}\n" for n, s, e in results)  # fmt: skip
        clauses = "".join(f" {keyword}{_listed(group)}" for keyword, group in [*self.inputs, *self.outputs])
        count = "" if len(results) == 1 else f":{len(results)}"
        kinds = ", ".join(tensor(s, e) for _, s, e in results)
        return f"{empty}  %{name}{count} = attn.{self.op}{clauses}{self.attributes} -> {kinds}\n"

    def ir(self):
        results = self.results()
        names = ["result"] if len(results) == 1 else [f"result#{i}" for i in range(len(results))]
        named = [(name, *result[1:]) for name, result in zip(names, results)]
        return Text(self.body(), self.arguments(), named).ir()

    def result_bytes(self):
        return _num_bytes(self.results())


class Text:
    """@run written out; `arguments` and `results` are those of its signature, the
    arguments from number `buffers_from` on in memory that it writes to."""

    def __init__(self, body, arguments, results, buffers_from=None):
        self._body, self._arguments, self._results = body, arguments, results
        self._buffers_from = len(arguments) if buffers_from is None else buffers_from

    def arguments(self):
        return self._arguments

    def results(self):
        return self._results

    def ir(self):
        kinds = [tensor(s, e) for _, s, e in self._arguments]
        first = self._buffers_from
        kinds[first:] = [kind.replace("tensor", "memref") for kind in kinds[first:]]
        arguments = ", ".join(f"%{o[0]}: {kind}" for o, kind in zip(self._arguments, kinds))
        results = ", ".join(tensor(s, e) for _, s, e in self._results)
        names = ", ".join(f"%{name}" for name, _, _ in self._results)
        end = f"  return {names} : {results}\n" if self._results else "  return\n"
        return f"func.func @run({arguments}) -> ({results}) {{\n{self._body}{end}}}\n"

    def result_bytes(self):
        return _num_bytes(self._results)
