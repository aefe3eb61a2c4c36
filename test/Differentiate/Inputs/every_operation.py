# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs --attn-differentiate, once and once more, on the example of every operation of the dialect.

usage: every_operation.py <fovea-opt> <folder of .td files> <folder of doctest.mlir files> [omitted operation]

There is a gradient, or an error that says why not: which of them it is, TABLE says.
"""

import pathlib
import re
import subprocess
import sys

GRADIENT = "gradient"
NONE = "'{0}' op has no gradient, but results of '@{1}' depend on it"
INTEGERS = "cannot be differentiated: has no result of a floating-point type"
SECOND = "'{0}_backward' op has no gradient, but results of '@{1}_vjp' depend on it"

#: For each operation what the pass says of its example, and of the gradient of that.
TABLE = {
    **dict.fromkeys(
        "dense dense_backward quantize rope rope_backward tree_build tree_fetch tree_materialize tree_update".split(),
        (GRADIENT, GRADIENT),
    ),
    **dict.fromkeys(
        "conv conv_apply conv_recover fast_multipole fast_multipole_linear low_rank polynomial_features pool stream summarize vq".split(),
        (GRADIENT, SECOND),
    ),
    # The example has a function of scores.
    "yield": (GRADIENT, "'attn.dense_backward' op has no gradient: a second derivative of attention with a function of scores"),
    **dict.fromkeys(
        """codebook_accumulate codebook_scan codebook_update conv_apply_backward conv_backward conv_recover_backward
        fast_multipole_backward fast_multipole_linear_backward log_count low_rank_backward polynomial_features_backward
        pool_backward stream_backward summarize_backward take_rows vq_backward vq_decode""".split(),
        (NONE,),
    ),
    **dict.fromkeys(
        "check_codes check_intervals list_tokens top_k tree_score tree_select tree_split".split(), (INTEGERS,)
    ),
}  # fmt: skip


def definitions(folder):
    """The names of all operations."""
    for path in sorted(pathlib.Path(folder).rglob("*.td")):
        yield from re.findall(r"^def Attn_\w+Op\s*:\s*\w*Op<(?:Attn_Dialect, )?\"(\w+)\"", path.read_text(), re.M)


def examples(folder):
    """For each operation a file and the function of it that is called after the operation, or else the first with one."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("doctest.mlir")):
        for name, body in re.findall(r"^func\.func @(\w+)(.*?)^}", path.read_text(), re.M | re.S):
            for op in set(re.findall(r"attn\.(\w+)", body)):
                if op not in found or name == op:
                    found[op] = path, name
    return found


def differentiate(tool, path, *functions):
    """What the pass says: GRADIENT, or the first error."""
    options = [f"--attn-differentiate=function={name}" for name in functions]
    done = subprocess.run([tool, path, *options], capture_output=True, text=True)
    if done.returncode == 0:
        return GRADIENT if f"@{functions[-1]}_vjp(" in done.stdout else "no function"
    error = re.search(r"error: (.*)", done.stderr)
    return error.group(1) if done.returncode == 1 and error else f"crash, {done.returncode}: {done.stderr[-2000:]}"


def main(tool, td_folder, test_folder, omitted=None):
    ops, found, problems = list(definitions(td_folder)), examples(test_folder), 0
    for op in ops:
        if op not in found:
            print(f"problem: no example of attn.{op}")
            problems += 1
            continue
        path, name = found[op]
        said = [differentiate(tool, path, name)]
        if said == [GRADIENT]:
            said.append(differentiate(tool, path, name, f"{name}_vjp"))
        wanted = [each.format(f"attn.{op}", name) for each in TABLE.get(op, ()) if op != omitted]
        print(f"attn.{op}: {'; '.join(said)}")
        if len(wanted) != len(said) or not all(map(str.__contains__, said, wanted)):
            print(f"problem: attn.{op} in @{name}: found {said}, needed {wanted}")
            problems += 1
    print(f"{len(ops)} operations, {problems} problems")
    return 1 if problems or not ops else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
