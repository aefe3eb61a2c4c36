# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that everything that looks like a test is run by something: files with RUN
lines and Python files with test functions by lit or utils/frameworks.sh, C++ files with
GoogleTests by a binary, and the scripts and examples beside them by a test or by another
script.

    all_found.py <source folder> <output of lit --show-suites --show-tests> <compile_commands.json>
"""

import json
import pathlib
import re
import sys

# Where tests and what they run are.
FOLDERS = ("benchmarks", "examples", "python/tests", "test", "unittests")
# These are read by lit and pytest themselves.
CONFIGURATION = {"lit.cfg.py", "conftest.py", "__init__.py"}
RUN_LINE = re.compile(r"^\W*RUN: ", re.MULTILINE)
TEST_FUNCTION = re.compile(r"^(?:    )?def test_|^class Test", re.MULTILINE)
GOOGLE_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(", re.MULTILINE)


def found_by_lit(listing):
    """The files of all tests in what lit shows."""
    roots = dict(re.findall(r"^  (\S+) - \d+ tests\n    Source Root: (.*)$", listing, re.MULTILINE))
    return {pathlib.Path(roots[suite], path).resolve() for suite, path in re.findall(r"^  (\S+) :: (.*)$", listing, re.MULTILINE)}


def found_by_frameworks(source):
    """The files that utils/frameworks.sh gives to pytest, which collects test_*.py."""
    script = source / "utils/frameworks.sh"
    named = re.findall(r"\bpython/tests/\S+?(?=[;\s])", script.read_text()) if script.is_file() else []
    return {path.resolve() for folder in named for path in (source / folder).rglob("test_*.py")}


def is_used(path, texts):
    """Whether another file runs or imports the script `path`."""
    use = re.compile(rf"\b{re.escape(path.name)}\b|\bimport .*\b{path.stem}\b|\bfrom [\w.]*\b{path.stem} import\b")
    return any(use.search(text) for other, text in texts.items() if other != path and other.suffix != ".md")


def orphans(source, found, compiled):
    """What looks like a test and is run by nothing, and who should run it."""
    files = [path for folder in FOLDERS for path in sorted((source / folder).rglob("*")) if path.is_file()]
    texts = {}
    for path in files:
        try:
            texts[path] = path.read_text()
        except UnicodeDecodeError:
            pass
    for path, text in texts.items():
        if path.suffix == ".cpp" and GOOGLE_TEST.search(text):
            if path not in compiled:
                yield path, "no binary has it"
        elif path.suffix == ".py" and TEST_FUNCTION.search(text) or RUN_LINE.search(text):
            if path not in found:
                yield path, "lit does not find it"
        elif path.suffix == ".py" and path.name not in CONFIGURATION and not is_used(path, texts):
            yield path, "no test runs it"


def main(source, listing, commands):
    source = pathlib.Path(source).resolve()
    compiled = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in json.loads(pathlib.Path(commands).read_text())}
    found = found_by_lit(pathlib.Path(listing).read_text()) | found_by_frameworks(source)
    lost = list(orphans(source, found, compiled))
    for path, reason in lost:
        print(f"{path.relative_to(source)}: {reason}")
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
