"""Writes docs/licences.md from the metadata of what is installed: what is used beside our own code."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flagperf.spec.toml_files import read_toml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "licences.md"
MARKER = "<!-- Written by `make docs` from here on. -->\n"
OWN = re.compile("flagperf(-.*)?")
VENDORS_OWN = ("torch",)
"""What comes from the vendor of the cards, with all that it needs."""
EXTRAS = {
    "run": "Cases",
    "html": "Pages with charts",
    "zstd": "Archives with zstd",
    "parquet": "Export to Parquet",
    "mlflow": "Export to MLflow",
    "light": "Development, the light part",
    "dev": "Development",
}
"""Extra -> what it is for, in the order of the page."""


def render(hand_written: str) -> str:
    parts = [_section(title, direct) for title, direct in direct_requirements().items()]
    return hand_written + MARKER + "\n" + "\n".join(parts)


def direct_requirements() -> dict[str, list[str]]:
    """Section of the page -> names of the distributions that our own ask for."""
    core = read_toml(ROOT / "pyproject.toml")["project"]
    adapters = [read_toml(path)["project"] for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))]
    own = {
        "flagperf": _names(core["dependencies"]),
        "Adapters": _names(text for project in adapters for text in project["dependencies"]),
    }
    extras = core["optional-dependencies"]
    return own | {f"{title}: `flagperf[{name}]`": _names(extras[name]) for name, title in EXTRAS.items()}


def _names(requirements: Iterable[str]) -> list[str]:
    found = [canonicalize_name(Requirement(text).name) for text in requirements]
    return sorted({name for name in found if not OWN.fullmatch(name)})


def _section(title: str, direct: list[str]) -> str:
    rows = [f"| {name} | {licence(name)} | {'' if name in direct else 'indirectly'} |" for name in _closure(direct)]
    return "\n".join([f"## {title}\n", "| distribution | licence | needed |", "|---|---|---|", *rows]) + "\n"


def _closure(direct: list[str]) -> list[str]:
    """With what they need themselves, here."""
    found: set[tuple[str, str]] = set()
    pending = [(name, "") for name in direct]
    while pending:
        name, extra = pending.pop()
        if (name, extra) in found or name in VENDORS_OWN:
            continue
        found.add((name, extra))
        required = [Requirement(text) for text in importlib.metadata.distribution(name).requires or ()]
        here = [each for each in required if each.marker is None or each.marker.evaluate({"extra": extra})]
        pending += [(canonicalize_name(each.name), asked) for each in here for asked in ("", *each.extras)]
    return sorted({name for name, _ in found})


def licence(name: str) -> str:
    """As the distribution's own metadata has it: an SPDX expression, a short text, or classifiers."""
    metadata = importlib.metadata.metadata(name)
    given = metadata.get("License-Expression") or metadata.get("License") or ""
    classifiers = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier", []) if "License ::" in text]
    if given and len(given) <= 60 and "\n" not in given:
        return given
    return ", ".join(classifiers)


def hand_written_part(page: str) -> str:
    return page.partition(MARKER)[0]


if __name__ == "__main__":
    PAGE.write_text(render(hand_written_part(PAGE.read_text())))
