"""What does not stand in the source: vendors' names where every vendor is served, questions for the kind, shortcuts."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flagperf.kinds import KINDS

ROOT = Path(__file__).parents[2]
CORE, CASES = ROOT / "core" / "flagperf", ROOT / "cases"
SHARED = [path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in ("builtin", "testing")]
SOURCES = [*CORE.rglob("*.py"), *CASES.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("bench/**/*.py")]

VENDOR_WORD = re.compile("cuda|nvidia|nvml|metax|maca|hygon|dcu|kunlun|xpu|rocm|nccl", re.IGNORECASE)
VENDOR_NAMES = {"vendor", "vendor_word", "torch_type", "collective_backend", "aliases"}
TEXT = {tokenize.NAME, tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def vendor_words(source: str) -> Iterator[str]:
    """Names, texts, comments and docstrings. A rule of plausibility may quote the page that it is drawn from."""
    quoted = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Rule"
        for line in range(node.args[1].lineno, (node.args[1].end_lineno or 0) + 1)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        found = VENDOR_WORD.search(token.string) if token.type in TEXT else None
        if found and token.start[0] not in quoted:
            yield f"line {token.start[0]}: {found[0]!r} is a vendor's word"


def compared(node: ast.AST) -> Iterator[ast.expr]:
    """What is looked at in a comparison, a match or `startswith`."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Match):
        parts = [node.subject]
    elif isinstance(node, ast.MatchValue):
        parts = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
        parts = [node.func.value]
    for part in parts:
        yield from part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]


def questions_for_the_vendor(source: str) -> Iterator[str]:
    """`ctx.vendor == ...`, `device.type in (...)`, `match backend.vendor`."""
    for node in ast.walk(ast.parse(source)):
        for part in compared(node):
            text = ast.unparse(part)
            is_word = isinstance(part, ast.Constant) and VENDOR_WORD.fullmatch(str(part.value))
            if is_word or text.rpartition(".")[2] in VENDOR_NAMES or re.search(r"device\w*\.type$", text):
                yield f"line {part.lineno}: {text} asks which vendor this is"


def questions_for_the_kind(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        for part in [*compared(node), *([node.slice] if isinstance(node, ast.Subscript) else [])]:
            if isinstance(part, ast.Constant) and part.value in KINDS:
                yield f"line {part.lineno}: asks for the kind of a case; let flagperf.kinds say what differs"


def shortcuts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "shell" and ast.unparse(node.value) != "False":
            yield f"line {node.lineno}: shell=True"
        if isinstance(node, ast.ExceptHandler):
            caught = set(re.findall(r"\w+", ast.unparse(node.type))) if node.type else {"Exception"}
            is_broad = bool(caught & {"Exception", "BaseException"})
            if is_broad and all(isinstance(each, ast.Pass | ast.Continue) for each in node.body):
                yield f"line {node.lineno}: `{ast.unparse(node).splitlines()[0]}` swallows everything"
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called.endswith("suppress") and re.search(r"\b(Base)?Exception\b", ast.unparse(node)):
            yield f"line {node.lineno}: {ast.unparse(node)} swallows everything"
    for number, line in enumerate(source.splitlines(), start=1):
        if mark := re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"line {number}: {mark[0]}"


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        (vendor_words, SHARED),
        (vendor_words, list(CASES.rglob("*.py"))),
        (questions_for_the_vendor, list(CASES.rglob("*.py"))),
        (questions_for_the_kind, [path for path in CORE.rglob("*.py") if path.name != "kinds.py"]),
        (shortcuts, SOURCES),
    ],
)
def test_the_source_has_no(rule: Callable[[str], Iterator[str]], paths: list[Path]) -> None:
    assert len(paths) > 50
    found = [f"{path.relative_to(ROOT)}: {each}" for path in sorted(paths) for each in rule(path.read_text())]
    assert not found, "\n".join(found)
