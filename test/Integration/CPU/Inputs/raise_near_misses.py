# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is nearly attention stays as it is, and a remark says why."""

import re
import subprocess

from linalg_attention import Value, Writer, mask_grid, softmax

B, H, N, M, D = 2, 3, 6, 6, 4
REMARKS = ["--remarks-filter=attn.*", "--remark-policy=all", "--remark-format=emitRemark"]


def optimize(text, *options):
    done = subprocess.run(["fovea-opt", "-", *options], input=text, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


class Case:
    """Attention, of which each near miss replaces a part."""

    def __init__(self):
        self.w = Writer("f32")
        self.q, self.k, self.v = (Value(n, (B, H, N, D), "f32") for n in ("%q", "%k", "%v"))
        self.extra = []

    def take(self, name, shape, dtype="f32"):
        self.extra.append(Value(name, shape, dtype))
        return self.extra[-1]

    def scores(self):
        return self.w.einsum("bhnd,bhmd->bhnm", self.q, self.k)

    def product(self, p):
        return self.w.einsum("bhnm,bhme->bhne", p, self.v)

    def function(self, result):
        return self.w.function([self.q, self.k, self.v, *self.extra], result)


def plain(c):
    return c.product(softmax(c.w, c.scores(), "plain"))


def over_queries(c):
    return c.product(softmax(c.w, c.scores(), "plain", dim=2))


def over_heads(c):
    return c.product(softmax(c.w, c.scores(), "plain", dim=1))


def denominator_plus_one(c):
    e = c.w.unary("math.exp", c.scores())
    one = c.w.constant(1.0)
    total = c.w.map([c.w.reduce(e, 3, "arith.addf", 0.0)], [f"%r = arith.addf %a0, {one} : f32"])
    return c.product(c.w.binary("divf", e, total))


def sum_from_one(c):
    e = c.w.unary("math.exp", c.scores())
    return c.product(c.w.binary("divf", e, c.w.reduce(e, 3, "arith.addf", 1.0)))


def sum_of_others(c):
    s = c.scores()
    e, other = c.w.unary("math.exp", s), c.w.unary("math.exp", c.w.scale(s, 2.0))
    return c.product(c.w.binary("divf", e, c.w.reduce(other, 3, "arith.addf", 0.0)))


def dropout(c):
    p = softmax(c.w, c.scores(), "plain")
    return c.product(c.w.binary("mulf", p, c.take("%keep", (B, H, N, M))))


def dropout_by_select(c):
    p = softmax(c.w, c.scores(), "plain")
    zero = c.w.fill(0.0, p.shape)
    drop = c.take("%drop", (B, H, N, M), "i1")
    return c.product(c.w.map([drop, zero, p], ["%r = arith.select %a0, %a1, %a2 : f32"], "f32"))


def zeroed_rows(c):
    p = softmax(c.w, c.scores(), "plain")
    zero = c.w.fill(0.0, p.shape)
    rows = c.w.reshape(c.take("%rows", (N,), "i1"), [1, 1, N, 1])
    return c.product(c.w.map([rows, zero, p], ["%r = arith.select %a0, %a1, %a2 : f32"], "f32"))


def log_softmax(c):
    s = c.scores()
    shifted = c.w.binary("subf", s, c.w.reduce(s, 3, "arith.maximumf", -float("inf")))
    total = c.w.reduce(c.w.unary("math.exp", shifted), 3, "arith.addf", 0.0)
    return c.product(c.w.binary("subf", shifted, c.w.unary("math.log", total)))


def weights_returned(c):
    return softmax(c.w, c.scores(), "plain")


def dropped_key(c):
    """The weight of a key that is there is dropped."""
    p = c.w.slice(softmax(c.w, c.scores(), "plain"), 3, 0, M - 1)
    return c.w.einsum("bhnm,bhme->bhne", p, c.w.slice(c.v, 2, 0, M - 1))


def sunk(c, columns, begin):
    """A soft-max of scores and columns behind, of which M are kept."""
    p = softmax(c.w, c.w.concat([c.scores(), columns], 3), "plain")
    return c.product(c.w.slice(p, 3, begin, M))


def two_sinks(c):
    return sunk(c, c.take("%sinks", (B, H, N, 2)), 0)


def sink_of_rows(c):
    return sunk(c, c.take("%sinks", (B, H, N, 1)), 0)


def other_part(c):
    return sunk(c, c.take("%sinks", (B, H, N, 1)), 1)


def select_of_tensors(c):
    """A function of scores that reads a truth value for each entry."""
    t, other = c.take("%t", (B, H, N, M), "i1"), c.take("%other", (B, H, N, M))
    s = c.w.map([t, c.scores(), other], ["%r = arith.select %a0, %a1, %a2 : f32"], "f32")
    return c.product(softmax(c.w, s, "plain"))


def bits(c):
    """Scores without their sign, by their bits."""
    s = c.w.map([c.scores()], ["%b = arith.bitcast %a0 : f32 to i32", "%c = arith.constant 2147483647 : i32",
                               "%m = arith.andi %b, %c : i32", "%r = arith.bitcast %m : i32 to f32"], "f32")
    return c.product(softmax(c.w, s, "plain"))


def function_of_no_product(c):
    return c.product(softmax(c.w, c.w.unary("math.tanh", c.take("%s", (B, H, N, M))), "plain"))


def many_steps(c):
    s = c.scores()
    for _ in range(70):
        s = c.w.unary("math.tanh", s)
    return c.product(softmax(c.w, s, "plain"))


def scores_given(c):
    return c.product(softmax(c.w, c.take("%s", (B, H, N, M)), "plain"))


def other_number(c):
    grid, low = mask_grid(c.w, "causal", N, M, 4), c.w.fill(-5.0, (B, H, N, M))
    s = c.w.map([grid, c.scores(), low], ["%r = arith.select %a0, %a1, %a2 : f32"], "f32")
    return c.product(softmax(c.w, s, "plain"))


def keys_of_queries(c):
    k = c.take("%own", (B, H, N, M, D))
    return c.product(softmax(c.w, c.w.einsum("bhnd,bhnmd->bhnm", c.q, k), "plain"))


def values_of_queries(c):
    v = c.take("%own", (B, H, N, M, D))
    return c.w.einsum("bhnm,bhnme->bhne", softmax(c.w, c.scores(), "plain"), v)


def sum_over_heads(c):
    return c.w.einsum("bhnm,bhme->bne", softmax(c.w, c.scores(), "plain"), c.v)


def squared_weights(c):
    p = softmax(c.w, c.scores(), "plain")
    return c.product(c.w.binary("mulf", p, p))


def onto_numbers(c):
    p, into = softmax(c.w, c.scores(), "plain"), c.take("%into", (B, H, N, D))
    return c.w.generic([p, c.v], ["d0, d1, d2, d3", "d0, d1, d3, d4"], into, "d0, d1, d2, d4",
                       ["parallel"] * 3 + ["reduction", "parallel"],
                       ["%p = arith.mulf %a0, %a1 : f32", "%r = arith.addf %o, %p : f32", "linalg.yield %r : f32"])


def diagonal(c):
    """Every query has the keys of its own head only where b = h."""
    k = c.take("%square", (H, H, M, D))
    s = c.w.einsum("bhnd,hhmd->bhnm", c.q, k)
    return c.product(softmax(c.w, s, "plain"))


CASES = {
    over_queries: "does not sum over the axis of the soft-max, at 'linalg.generic'",
    over_heads: "does not sum over the axis of the soft-max, at 'linalg.generic'",
    denominator_plus_one: "divides by is not a sum of exponentials, at 'arith.divf'",
    sum_from_one: "divides by is not a sum of exponentials, at 'arith.divf'",
    sum_of_others: "the sum is not one of the exponentials divided, at 'linalg.generic'",
    dropout: "no product reads the weights as they are, at 'arith.divf'",
    dropout_by_select: "not where all scores are -inf, at 'arith.divf'",
    zeroed_rows: "not where all scores are -inf, at 'arith.divf'",
    log_softmax: None,
    weights_returned: "no product reads the weights as they are, at 'arith.divf'",
    dropped_key: "the weights that are dropped are not of one sink, at 'tensor.extract_slice'",
    two_sinks: "the weights that are dropped are not of one sink, at 'tensor.extract_slice'",
    sink_of_rows: "the sink differs from query to query, at 'arith.divf'",
    other_part: "the weights that are dropped are not of one sink, at 'tensor.extract_slice'",
    select_of_tensors: "functions of scores read floating point alone, at 'linalg.generic'",
    bits: "attn.dense has no such function of scores, at 'arith.bitcast'",
    function_of_no_product: "the scores are no product of queries and keys, at 'math.tanh'",
    many_steps: "the function of scores has too many operations, at 'math.tanh'",
    scores_given: "the scores are an argument, at 'linalg.generic'",
    other_number: "functions of scores read floating point alone, at 'arith.cmpi'",
    keys_of_queries: "keys and values have other heads, at 'linalg.generic'",
    values_of_queries: "keys or values differ from query to query, at 'linalg.generic'",
    sum_over_heads: "does not sum over the axis of the soft-max, at 'linalg.generic'",
    squared_weights: "no product reads the weights as they are, at 'arith.divf'",
    onto_numbers: "the product adds to other numbers, at 'linalg.generic'",
    diagonal: "queries, keys or values are no whole tensor, at 'linalg.generic'",
}


def main():
    failed = 0
    # The checks find what is raised.
    case = Case()
    raised, remarks = optimize(case.function(plain(case)), "--attn-raise", *REMARKS)
    assert "attn.dense" in raised and "AttentionRaised" in remarks, remarks
    for make, reason in CASES.items():
        case = Case()
        text = case.function(make(case))
        found, remarks = optimize(text, "--attn-raise", *REMARKS)
        same = found == optimize(text)[0]
        told = re.findall(r'SoftmaxNotRaised.*Remark="([^"]*)"', remarks)
        right = told == [] if reason is None else len(told) == 1 and reason in told[0]
        if not same or not right:
            failed += 1
            print(f"FAILED: {make.__name__}: {'as it is' if same else 'changed'}, remarks {told}")
    print(f"{len(CASES)} near misses, {failed} failed")
    raise SystemExit(failed != 0)


main()
