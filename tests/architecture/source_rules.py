"""Rules for source text that a formatter does not know, each a function from source to complaints."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from flagperf.kinds import KINDS

VENDOR_WORDS = (
    "cuda",
    "nvidia",
    "nvml",
    "metax",
    "maca",
    "hygon",
    "dcu",
    "kunlun",
    "xpu",
    "rocm",
    "nccl",
)

_WORD = re.compile("|".join(VENDOR_WORDS), re.IGNORECASE)
_VENDOR_NAMES = {"vendor", "vendor_word", "torch_type", "collective_backend", "aliases"}
_TOKENS_WITH_TEXT = {
    tokenize.NAME,
    tokenize.STRING,
    tokenize.COMMENT,
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
}


def vendor_words(source: str) -> list[str]:
    """Names, texts, comments and docstrings that speak of one vendor. A rule of plausibility may quote the page that it
    is drawn from."""
    quoted = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Rule"
        for keyword in node.keywords
        if keyword.arg == "published"
        for line in range(keyword.lineno, (keyword.end_lineno or keyword.lineno) + 1)
    }
    return [
        f"line {token.start[0]}: {found[0]!r} is a vendor's word"
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in _TOKENS_WITH_TEXT and (found := _WORD.search(token.string))
        if token.start[0] not in quoted
    ]


def vendor_comparisons(source: str) -> list[str]:
    """`ctx.vendor == ...`, `device.type in (...)`, `match backend.vendor`: a case must not ask whose card this is."""
    return [
        f"line {node.lineno}: {ast.unparse(node).splitlines()[0]} asks which vendor this is"
        for node in ast.walk(ast.parse(source))
        if any(_is_about_the_vendor(part) for part in _compared(node))
    ]


def kind_comparisons(source: str) -> list[str]:
    """Whatever asks which kind of case this is: a kind is an object, which knows what differs."""
    return [
        f"line {part.lineno}: asks for the kind of a case ({ast.unparse(part)}); let flagperf.kinds say what differs"
        for node in ast.walk(ast.parse(source))
        for part in (*_compared(node), *_subscript(node))
        if _names_a_kind(part)
    ]


def _subscript(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Subscript):
        yield node.slice
    elif isinstance(node, ast.MatchValue):
        yield node.value


def _names_a_kind(part: ast.expr) -> bool:
    if isinstance(part, ast.Tuple | ast.List | ast.Set):
        return any(map(_names_a_kind, part.elts))
    return isinstance(part, ast.Constant) and part.value in KINDS


def forbidden_constructs(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [
        f"line {node.lineno}: shell=True"
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "shell" and not _is_constant(node.value, False)
    ]
    found += [
        f"line {node.lineno}: `{ast.unparse(node).splitlines()[0]}` swallows everything"
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _is_broad(node) and all(map(_does_nothing, node.body))
    ]
    found += [
        f"line {node.lineno}: suppress({ast.unparse(node.args[0])}) swallows everything"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and any(ast.unparse(argument) in ("Exception", "BaseException") for argument in node.args)
    ]
    found += [
        f"line {number}: {mark[0]}"
        for number, line in enumerate(source.splitlines(), start=1)
        if (mark := re.search(r"\b(TODO|FIXME|XXX)\b", line))
    ]
    return found


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Match):
        yield node.subject
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
        yield node.func.value


def _is_about_the_vendor(part: ast.expr) -> bool:
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        return bool(_WORD.fullmatch(part.value))
    if isinstance(part, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_about_the_vendor, part.elts))
    if isinstance(part, ast.Attribute) and part.attr == "type":
        return "device" in ast.unparse(part.value)
    name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
    return name in _VENDOR_NAMES


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
