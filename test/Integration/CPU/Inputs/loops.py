# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops to differentiate, each with the same program unrolled. `$T` is the element type."""

import numpy as np
from gradients import function, positive


def loop(name, arguments, inputs, carried, body, *, trips, setup=(), before=(), kind="index", **more):
    """`carried` has (type, first value) of each state, of which integers are not returned;
    `body(i, states, tag)` returns lines, whose names end in `tag`, and the next states. `trips`
    are the values of the counter; `before` are the lines that define %lower, %upper and %step,
    else they are constants."""
    names = [f"%s{n}" for n in range(len(carried))]
    types = [t for t, _ in carried]
    lines, results = body("%i", names, "_i")
    if not before:
        before = [f"%lower = arith.constant {trips.start} : {kind}", f"%upper = arith.constant {trips.stop} : {kind}",
                  f"%step = arith.constant {trips.step} : {kind}"]  # fmt: skip
    iterated = ", ".join(f"{n} = {init}" for n, (_, init) in zip(names, carried))
    returned = [n for n, kind in enumerate(types) if "$T" in kind]
    results_type = ", ".join(types[n] for n in returned)
    counted = "" if kind == "index" else f" : {kind}"
    text = function(
        arguments, results_type, *setup, *before,
        f"%r:{len(types)} = scf.for %i = %lower to %upper step %step iter_args({iterated}) -> ({', '.join(types)}){counted} {{",
        *lines, f"scf.yield {', '.join(results)} : {', '.join(types)}", "}",
        returned=", ".join(f"%r#{n}" for n in returned),
    )  # fmt: skip
    unrolled, states = list(setup), [init for _, init in carried]
    for at in trips:
        lines, states = body(f"%i{at}", states, f"_{at}")
        unrolled += [f"%i{at} = arith.constant {at} : {kind}", *lines]
    same = function(arguments, results_type, *unrolled, returned=", ".join(states[n] for n in returned))
    return dict(name=f"loop, {name}", text=text, same=same, inputs=inputs, **more)


ROW = "tensor<4x$T>"
ZERO = "%zero = arith.constant 0.0 : $T"
ONE_ROW = "[1, 4] [1, 1]"


def cell(all_type):
    """A recurrent cell, whose outputs are collected."""
    def body(i, states, tag):
        return [
            f"%x{tag} = tensor.extract_slice %x[{i}, 0] {ONE_ROW} : {all_type} to {ROW}",
            f"%e{tag} = tensor.empty() : {ROW}",
            f"%z{tag} = linalg.fill ins(%zero : $T) outs(%e{tag} : {ROW}) -> {ROW}",
            f"%m{tag} = linalg.matvec ins(%w, {states[0]} : tensor<4x4x$T>, {ROW}) outs(%z{tag} : {ROW}) -> {ROW}",
            f"%a{tag} = arith.addf %m{tag}, %x{tag} : {ROW}",
            f"%t{tag} = math.tanh %a{tag} : {ROW}",
            f"%o{tag} = tensor.insert_slice %t{tag} into {states[1]}[{i}, 0] {ONE_ROW} : {ROW} into {all_type}",
        ], [f"%t{tag}", f"%o{tag}"]  # fmt: skip
    return body


def recurrent(rows, name, **more):
    kind = f"tensor<{rows}x4x$T>"
    extent = [] if rows != "?" else ["%c0 = arith.constant 0 : index", f"%n = tensor.dim %x, %c0 : {kind}"]
    empty = f"%all = tensor.empty({'' if rows != '?' else '%n'}) : {kind}"
    return loop(
        name, f"%x: {kind}, %w: tensor<4x4x$T>, %h: {ROW}", [(5, 4), (4, 4), (4,)], [(ROW, "%h"), (kind, "%all")],
        cell(kind), trips=range(5), setup=[ZERO, *extent, empty], types=("f64", "f32"), **more)  # fmt: skip


def numbers(i, states, tag):
    """A number, and another element of %x each time, by a number that is an integer."""
    return [
        f"%a{tag} = tensor.extract %x[{states[1]}] : tensor<7x$T>",
        f"%p{tag} = arith.mulf {states[0]}, %a{tag} : $T", f"%q{tag} = math.sin %p{tag} : $T",
        f"%f{tag} = arith.index_cast {i} : i32 to index", f"%g{tag} = arith.addi %f{tag}, {states[1]} : index",
        f"%k{tag} = arith.remui %g{tag}, %seven : index",
    ], [f"%q{tag}", f"%k{tag}"]  # fmt: skip


def swapped(i, states, tag):
    """One that becomes the other, and one that is the same value every time."""
    return [f"%p{tag} = arith.mulf {states[0]}, {states[1]} : {ROW}"], [states[1], f"%p{tag}", "%y"]


def grown(i, states, tag):
    """A state whose extents are those of an argument."""
    kind = "tensor<?x3x$T>"
    return [f"%p{tag} = arith.mulf {states[0]}, %x : {kind}", f"%q{tag} = math.cos %p{tag} : {kind}"], [f"%q{tag}"]


SEQUENCES, SEQUENCE = "tensor<3x2x5x3x$T>", "tensor<1x2x5x3x$T>"
WHOLE = "[1, 2, 5, 3] [1, 1, 1, 1]"


def sequences(i, states, tag):
    """Attention, a sequence after the other."""
    cut = [f"%{n}{tag} = tensor.extract_slice %{n}[{i}, 0, 0, 0] {WHOLE} : {SEQUENCES} to {SEQUENCE}" for n in "qkv"]
    return [
        *cut, f"%e{tag} = tensor.empty() : {SEQUENCE}",
        f"%o{tag} = attn.dense ins(%q{tag}, %k{tag}, %v{tag} : {SEQUENCE}, {SEQUENCE}, {SEQUENCE})"
        f" outs(%e{tag} : {SEQUENCE}) {{causal}} -> {SEQUENCE}",
        f"%r{tag} = tensor.insert_slice %o{tag} into {states[0]}[{i}, 0, 0, 0] {WHOLE} : {SEQUENCE} into {SEQUENCES}",
    ], [f"%r{tag}"]  # fmt: skip


def packed(i, states, tag):
    """Sequences of their own lengths, one behind the other, between %offsets."""
    part, all_type = "tensor<1x2x?x3x$T>", "tensor<1x2x9x3x$T>"
    cut = [f"%{n}{tag} = tensor.extract_slice %{n}[0, 0, %a{tag}, 0] [1, 2, %n{tag}, 3] [1, 1, 1, 1] : {all_type} to {part}"
           for n in "qkv"]  # fmt: skip
    return [
        f"%j{tag} = arith.addi {i}, %one : index",
        f"%a{tag} = tensor.extract %offsets[{i}] : tensor<4xindex>",
        f"%b{tag} = tensor.extract %offsets[%j{tag}] : tensor<4xindex>",
        f"%n{tag} = arith.subi %b{tag}, %a{tag} : index", *cut, f"%e{tag} = tensor.empty(%n{tag}) : {part}",
        f"%o{tag} = attn.dense ins(%q{tag}, %k{tag}, %v{tag} : {part}, {part}, {part}) outs(%e{tag} : {part}) {{causal}} -> {part}",
        f"%r{tag} = tensor.insert_slice %o{tag} into {states[0]}[0, 0, %a{tag}, 0] [1, 2, %n{tag}, 3] [1, 1, 1, 1]"
        f" : {part} into {all_type}",
    ], [f"%r{tag}"]  # fmt: skip


def nested(i, states, tag):
    """A loop in a loop, which reads what both carry."""
    return [
        f"%x{tag} = tensor.extract_slice %x[{i}, 0] {ONE_ROW} : tensor<3x4x$T> to {ROW}",
        f"%t{tag}:2 = scf.for %j{tag} = %zeroth to %two step %one iter_args(%u{tag} = {states[0]}, %v{tag} = {states[1]})"
        f" -> ({ROW}, tensor<3x2x4x$T>) {{",
        f"%p{tag} = arith.mulf %u{tag}, %x{tag} : {ROW}", f"%q{tag} = math.sin %p{tag} : {ROW}",
        f"%s{tag} = arith.addf %q{tag}, %y : {ROW}",
        f"%w{tag} = tensor.insert_slice %s{tag} into %v{tag}[{i}, %j{tag}, 0] [1, 1, 4] [1, 1, 1] : {ROW} into tensor<3x2x4x$T>",
        f"scf.yield %s{tag}, %w{tag} : {ROW}, tensor<3x2x4x$T>", "}",
    ], [f"%t{tag}#0", f"%t{tag}#1"]  # fmt: skip


def chain(i, states, tag):
    """A tensor whose rows are made of the ones before them, which are kept, not the tensor."""
    kind = "tensor<5x4x$T>"
    return [
        f"%x{tag} = tensor.extract_slice {states[0]}[{i}, 0] {ONE_ROW} : {kind} to {ROW}",
        f"%p{tag} = arith.mulf %x{tag}, %w : {ROW}", f"%q{tag} = math.sin %p{tag} : {ROW}",
        f"%j{tag} = arith.addi {i}, %one : index",
        f"%o{tag} = tensor.insert_slice %q{tag} into {states[0]}[%j{tag}, 0] {ONE_ROW} : {ROW} into {kind}",
    ], [f"%o{tag}"]  # fmt: skip


def branches(i, states, tag):
    """A branch in every other iteration, which reads another value in each."""
    odd, even = f"%a{tag} = arith.mulf {states[0]}, %x : {ROW}", f"%b{tag} = math.sin {states[0]} : {ROW}"
    if tag != "_i":
        return ([odd], [f"%a{tag}"]) if int(tag[1:]) % 2 else ([even], [f"%b{tag}"])
    return [
        f"%m = arith.remui {i}, %two : index", "%odd = arith.cmpi eq, %m, %one : index",
        f"%r_i = scf.if %odd -> {ROW} {{", odd, f"scf.yield %a{tag} : {ROW}", "} else {", even, f"scf.yield %b{tag} : {ROW}", "}",
    ], ["%r_i"]  # fmt: skip


def while_loop(name, trips):
    """What the condition hands over is computed once more than the rest of an iteration."""
    text = [
        "%zeroth = arith.constant 0 : index", "%one = arith.constant 1 : index",
        f"%r:2 = scf.while (%s = %x, %i = %zeroth) : ({ROW}, index) -> ({ROW}, index) {{",
        f"%t = arith.mulf %s, %y : {ROW}", "%more = arith.cmpi slt, %i, %n : index",
        f"scf.condition(%more) %t, %i : {ROW}, index", "} do {", f"^bb0(%u: {ROW}, %j: index):",
        f"%v = math.sin %u : {ROW}", "%k = arith.addi %j, %one : index", f"scf.yield %v, %k : {ROW}, index", "}",
    ]  # fmt: skip
    same, state = [], "%x"
    for number in range(trips):
        same += [f"%t{number} = arith.mulf {state}, %y : {ROW}", f"%v{number} = math.sin %t{number} : {ROW}"]
        state = f"%v{number}"
    same.append(f"%last = arith.mulf {state}, %y : {ROW}")
    arguments = f"%x: {ROW}, %y: {ROW}, %n: index"
    return dict(name=f"while loop, {name}", text=function(arguments, ROW, *text, returned="%r#0"),
                same=function(arguments, ROW, *same, returned="%last"), inputs=[(4,), (4,), integer(trips)],
                types=("f64", "f32"))  # fmt: skip


def until_small():
    """As long as data says, in a branch."""
    text = [
        "%least = arith.constant 0.2 : $T", "%half = arith.constant 0.5 : $T", "%small = arith.constant 0.01 : $T",
        "%large = arith.cmpf ogt, %x, %least : $T", "%r = scf.if %large -> $T {",
        "%w = scf.while (%s = %x) : ($T) -> $T {", "%more = arith.cmpf ogt, %s, %least : $T", "scf.condition(%more) %s : $T",
        "} do {", "^bb0(%u: $T):", "%p = arith.mulf %u, %half : $T", "%q = math.sin %p : $T", "%a = arith.mulf %small, %y : $T",
        "%b = arith.addf %q, %a : $T", "scf.yield %b : $T", "}", "scf.yield %w : $T", "} else {", "scf.yield %y : $T", "}",
    ]  # fmt: skip
    return dict(name="while loop in a branch", text=function("%x: $T, %y: $T", "$T", *text), inputs=[positive(()), ()],
                types=("f64", "f32"))  # fmt: skip


def integer(value):
    return lambda rng: np.asarray(value)


def loop_cases():
    bounds = [np.int32(n) for n in (1, 12, 4)]
    sizes = [(3, 2, 5, 3)] * 3
    return [
        recurrent(5, "static"), recurrent("?", "dynamic", before=[
            "%lower = arith.constant 0 : index", "%upper = arith.addi %n, %lower : index", "%step = arith.constant 1 : index"]),
        loop("numbers, bounds by arguments", "%x: tensor<7x$T>, %y: $T, %lower: i32, %upper: i32, %step: i32",
             [(7,), (), *map(integer, bounds)], [("$T", "%y"), ("index", "%k")], numbers, trips=range(*map(int, bounds)),
             setup=["%seven = arith.constant 7 : index", "%k = arith.constant 2 : index"],
             before=["%none = arith.constant 0 : i32"], kind="i32", types=("f64", "f32")),
        loop("no iteration", f"%x: {ROW}, %y: {ROW}, %lower: index, %upper: index, %step: index",
             [(4,), (4,), *map(integer, (7, 3, 2))], [(ROW, "%x"), (ROW, "%y"), (ROW, "%x")], swapped, trips=range(0),
             before=["%none = arith.constant 0 : index"], types=("f64",)),
        loop("swapped", f"%x: {ROW}, %y: {ROW}", [(4,), (4,)], [(ROW, "%x"), (ROW, "%y"), (ROW, "%x")], swapped,
             trips=range(2, 11, 3), types=("f64", "f32")),
        loop("dynamic extents", "%x: tensor<?x3x$T>", [(5, 3)], [("tensor<?x3x$T>", "%x")], grown, trips=range(4),
             types=("f64", "f32"), second=False),
        loop("sequences", f"%q: {SEQUENCES}, %k: {SEQUENCES}, %v: {SEQUENCES}", sizes, [(SEQUENCES, "%all")], sequences,
             trips=range(3), setup=[f"%all = tensor.empty() : {SEQUENCES}"]),
        loop("packed sequences", "%q: tensor<1x2x9x3x$T>, %k: tensor<1x2x9x3x$T>, %v: tensor<1x2x9x3x$T>,"
             " %offsets: tensor<4xindex>", [(1, 2, 9, 3)] * 3 + [integer([0, 4, 5, 9])], [("tensor<1x2x9x3x$T>", "%all")],
             packed, trips=range(3), setup=["%all = tensor.empty() : tensor<1x2x9x3x$T>", "%one = arith.constant 1 : index"],
             types=("f64", "f32"), second=False),
        loop("slices", f"%x: tensor<5x4x$T>, %w: {ROW}", [(5, 4), (4,)], [("tensor<5x4x$T>", "%x")], chain, trips=range(4),
             setup=["%one = arith.constant 1 : index"], types=("f64", "f32")),
        loop("branches", f"%x: {ROW}, %y: {ROW}", [(4,), (4,)], [(ROW, "%y")], branches, trips=range(5),
             setup=["%one = arith.constant 1 : index", "%two = arith.constant 2 : index"], types=("f64", "f32")),
        while_loop("3 iterations", 3), while_loop("none", 0), until_small(),
        loop("nested", f"%x: tensor<3x4x$T>, %y: {ROW}", [(3, 4), (4,)], [(ROW, "%y"), ("tensor<3x2x4x$T>", "%all")], nested,
             trips=range(3), setup=["%all = tensor.empty() : tensor<3x2x4x$T>", "%zeroth = arith.constant 0 : index",
                                    "%one = arith.constant 1 : index", "%two = arith.constant 2 : index"], types=("f64", "f32")),
    ]  # fmt: skip
