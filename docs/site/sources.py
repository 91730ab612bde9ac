"""Which file of the repository becomes which page, in which order, with its links leading to pages.

The files are written for GitHub, where links lead to files. On the site a link leads to the page of that file; a file
that is no page (a picture, a table) goes along.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]\n]*(?:\n[^\]\n]+)?)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
LANGUAGES = {"en": "", "zh_CN": "zh/"}
"""Language -> the folder of its pages on the site."""
NAVIGATION = {
    "en": {
        "Start": ["install"],
        "Tutorials": ["tutorials/buyer", "tutorials/vendor", "tutorials/case-author"],
        "Reading results": ["metrics", "comparing", "plausibility", "leaderboard", "published-pages"],
        "Measuring": ["cli", "clusters", "containers", "operations", "operators-of-runs", "passing-on", "export"],
        "Extending": ["add-a-vendor", "add-a-case", "add-an-operator", "api", "design", "decisions"],
        "Cases": ["cases/*"],
        "Adapters": ["adapters/*"],
        "Project": [
            "comparison", "project/contributing", "project/changelog", "project/security", "project/code_of_conduct",
            "licences",
        ],
    },
    "zh_CN": {"教程": ["tutorials/buyer", "tutorials/vendor"]},
}  # fmt: skip


def pages(language: str) -> dict[str, Path]:
    """Name of a page (its address without the ending) -> its file."""
    if language != "en":
        return _below(DOCS / LANGUAGES[language])
    found = {name: path for name, path in _below(DOCS).items() if not name.startswith("zh/")}
    found |= {f"cases/{path.parent.name}": path for path in ROOT.glob("cases/flagperf_cases/*/README.md")}
    found |= {f"adapters/{path.parent.name}": path for path in ROOT.glob("plugins/*/README.md")}
    return found | {f"project/{path.stem.lower()}": path for path in ROOT.glob("*.md") if path.stem != "README"}


def _below(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.md")}


def assemble(language: str, folder: Path) -> None:
    """Writes what Sphinx reads. It compiles the words beside the pages, where it finds them by itself."""
    shutil.copytree(Path(__file__).parent / "locales", folder / "locales")
    for name, path in pages(language).items():
        page = folder / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(with_links(path.read_text(encoding="utf-8"), path, language, folder, name), encoding="utf-8")
    with (folder / "index.md").open("a", encoding="utf-8") as index:
        index.writelines(_contents(caption, names) for caption, names in NAVIGATION[language].items())


def _contents(caption: str, names: list[str]) -> str:
    return "\n".join(["\n```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *names, "```\n"])


def with_links(text: str, source: Path, language: str, folder: Path, name: str) -> str:
    own = {path: page for page, path in pages(language).items()}
    others = {path: f"{LANGUAGES[each]}{page}" for each in LANGUAGES for page, path in pages(each).items()}

    def lead(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match["path"]))
        anchor = match["anchor"] or ""
        if target in own:
            return f"[{match['text']}]({_relative(own[target], name)}.md{anchor})"
        if target in others:  # Sphinx knows the pages of one language
            address = _relative(others[target], f"{LANGUAGES[language]}{name}")
            return f'<a href="{address}.html{anchor}">{match["text"]}</a>'
        if not target.is_file() or not target.is_relative_to(ROOT):
            return match[0]  # Sphinx complains
        return f"{match['picture']}[{match['text']}]({_relative(_take_along(target, folder), name)})"

    return LINK.sub(lead, text)


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, Path(page).parent)


def _take_along(target: Path, folder: Path) -> str:
    place = target.relative_to(DOCS if target.is_relative_to(DOCS) else ROOT)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, folder / place)
    return place.as_posix()
