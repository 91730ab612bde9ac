"""The rooms of report/: sections make documents and know no medium, renderers write documents and know no run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "core"
REPORT = CORE / "flagperf" / "report"

MAY_IMPORT = {
    "document": (),
    "render": ("document", "render", "texts"),
    "sections": ("document", "sections", "texts"),
    "texts": (),
}
"""Room -> rooms of report/ that it may import. Modules that are not named here put rooms together and import any."""

ALONE = ("render", "document")
"""Rooms that import nothing else of flagperf but its messages and what keeps foreign text harmless."""


def problems(module: str, source: str) -> list[str]:
    room = module.split(".")[2]
    found = []
    for target in _imported(source):
        other = _room(target)
        if other and room in MAY_IMPORT and other not in MAY_IMPORT[room]:
            found.append(f"{module} imports {target}: {room} may not know {other}")
        elif not other and _is_outside(target) and room in ALONE:
            found.append(f"{module} imports {target}: {room} knows nothing else of flagperf")
    return found


def _is_outside(target: str) -> bool:
    return target.partition(".")[0] == "flagperf" and not target.startswith(("flagperf.messages", "flagperf.escapes"))


def _imported(source: str) -> list[str]:
    nodes = list(ast.walk(ast.parse(source)))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return modules


def _room(target: str) -> str:
    """`sections` of `flagperf.report.sections.card.card`."""
    top, _, rest = target.partition("flagperf.report.")
    return rest.partition(".")[0] if not top and rest else ""


def test_no_room_imports_one_that_it_must_not_know() -> None:
    found = []
    for path in sorted(REPORT.rglob("*.py")):
        parts = path.relative_to(CORE).with_suffix("").parts
        if len(parts) > 3 or parts[2] != "__init__":
            found += problems(".".join(parts), path.read_text())
    assert not found, "\n".join(found)


def test_every_room_is_there() -> None:
    assert {path.stem for path in REPORT.iterdir()} >= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("flagperf.report.sections.card", "from flagperf.report.render import to_markdown"),
        ("flagperf.report.sections.card", "from flagperf.report.page import page"),
        ("flagperf.report.render.html", "from flagperf.report.sections.cells import has_results"),
        ("flagperf.report.render.html", "def late():\n    from flagperf.store.run import Run"),
        ("flagperf.report.render.html", "import flagperf.metrics"),
        ("flagperf.report.render.html", "from flagperf import units"),
        ("flagperf.report.document", "from flagperf.report.render import to_markdown"),
        ("flagperf.report.texts", "from flagperf.report.document import Text"),
    ],
)
def test_what_is_refused(module: str, source: str) -> None:
    assert len(problems(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "flagperf.report.sections.card",
            "from flagperf.report.document import Text\nfrom flagperf.store.run import Run",
        ),
        (
            "flagperf.report.render.html",
            "from flagperf.report.document import Text\nfrom flagperf.report.texts import say",
        ),
        (
            "flagperf.report.page",
            "from flagperf.report.render import to_markdown\nfrom flagperf.report.sections import x",
        ),
    ],
)
def test_what_is_allowed(module: str, source: str) -> None:
    assert problems(module, source) == []
