# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mlir code blocks of pages, one module per block.

`code_blocks.py PAGE...` prints them for --split-input-file, and
`code_blocks.py --block N PAGE` the one of them, or `--block N PAGE LANGUAGE` one of
another language. With `code_blocks.py --in FILE PAGE`
every block of the page must stand in FILE.
"""

import re
import sys


def blocks(page, language="mlir"):
    with open(page) as file:
        found = re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.S | re.M)
    if not found:
        sys.exit(f"error: found no {language} code block in {page}")
    return found


def main(arguments):
    if arguments[0] == "--in":
        with open(arguments[1]) as file:
            text = file.read()
        for block in blocks(arguments[2]):
            if block not in text:
                sys.exit(f"error: {arguments[1]} does not have this code:\n{block}")
        return
    if arguments[0] == "--block":
        print(blocks(*arguments[2:])[int(arguments[1])])
        return
    print("\n// -----\n\n".join(b for page in arguments for b in blocks(page)))


if __name__ == "__main__":
    main(sys.argv[1:])
