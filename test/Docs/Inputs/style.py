# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks hand-written pages: lines have less than 140 characters, links lead somewhere,
paths exist, and words that cost a reader time are not used.

    style.py <root of the repository> [<page>...]

Generated parts of pages are checked for their links only. Tables of results are as wide
as they come.
"""

import pathlib
import re
import sys

MOST = 139
MARKER = "<!-- Below this line the page is generated"
LINK = re.compile(r"\]\(([^)\s]+)\)")
# What stands in backticks and begins with a folder of the repository.
FOLDERS = "lib|include|runtime|tools|test|unittests|python|benchmarks|examples|utils|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./*{{}},-]*)`")
# Nouns name things; these leave the reader to guess.
VAGUE = re.compile(r"^(?:What|Who) (?!if\b)[^?]*$|\bthat there (?:are|is)\b|\bare judged\b|\bwho(?:m)? (?:copies|multiplies)\b")


def anchors(page):
    """The anchors of a page, as GitHub makes them from headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-"))
    return found


def check_link(page, target):
    if re.match(r"\w+:", target):
        return None
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"there is no {path}"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{path or 'the page'} has no heading for #{anchor}"
    return None


def sentences(lines):
    """Prose, a sentence each, with the line that it begins in."""
    text, first = "", 0
    for number, line in lines:
        if not text:
            first = number
        if line.startswith(("|", "#", "-")) or not line.strip():
            yield first, text
            text, first = re.sub(r"^[-#|]+ ?", "", line), number
            continue
        text = f"{text} {line.strip()}".strip()
        *whole, text = re.split(r"(?<=[.:!]) ", text)
        for sentence in whole:
            yield first, sentence
    yield first, text


def check(root, page):
    is_result = page.parent.name == "results"
    is_generated = in_code = False
    prose, errors = [], []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_generated |= line.startswith(MARKER)
        in_code ^= line.startswith("```")
        wrong = [] if in_code else [check_link(page, target) for target in LINK.findall(line)]
        if not is_generated:
            if len(line) > MOST and not (is_result and line.startswith("|")):
                wrong.append(f"{len(line)} characters, at most {MOST}")
            if not in_code:
                missing = [path for path in PATH.findall(line) if not exists(root, path)]
                wrong += [f"there is no {path}" for path in missing]
                prose.append((number, line))
        errors += [f"{page.relative_to(root)}:{number}: {text}" for text in wrong if text]
    if not is_result:
        for number, sentence in sentences(prose):
            if VAGUE.search(sentence):
                errors.append(f"{page.relative_to(root)}:{number}: name it: {sentence[:60]}")
    return errors


def exists(root, path):
    braces = re.match(r"(.*)\{(.*)\}(.*)$", path)
    if braces:
        return all(exists(root, braces[1] + part + braces[3]) for part in braces[2].split(","))
    return any(root.glob(path.rstrip("/")))


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = [pathlib.Path(page).resolve() for page in sys.argv[2:]]
    if not pages:
        pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), root / "python" / "README.md", root / "examples" / "README.md"]
    errors = [error for page in sorted(pages) for error in check(root, page)]
    print("\n".join([*errors, f"{len(pages)} pages, {len(errors)} errors"]))
    return bool(errors) or not pages


sys.exit(main())
