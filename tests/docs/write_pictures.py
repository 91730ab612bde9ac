"""Writes docs/pictures: a terminal session and pages of a recorded run, as flagperf shows them, and badges.

`make pictures` needs a browser on PATH for the pages. What the pictures show is real: a run of tests/bundles.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from flagperf.kit import module_command
from flagperf.spec.toml_files import read_toml

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
RUN = json.loads((ROOT / "tests/bundles/v1.json").read_text())["distilbert"]
SESSION = (
    f"flagperf report {RUN[:16]} --no-published",
    f"flagperf runs verify {RUN[:16]}",
)
WIDTH = 112
LANGUAGES = {"page.png": "en", "page-zh.png": "zh"}
FONT_FACES = re.compile(r"\s*@font-face \{\{.*?\}\}\n", re.DOTALL)
BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {value}">
<title>{name}: {value}</title>
<rect width="{width}" height="20" rx="3" fill="#555"/>
<path d="M{split} 0h{rest}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{rest}z" fill="#0a6e8a"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{name_middle}" y="14">{name}</text><text x="{value_middle}" y="14">{value}</text>
</g>
</svg>
"""


def terminal() -> str:
    """A session as SVG, with the reader's own fixed-width font: nothing is fetched."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="standard", force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for command in SESSION:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(_answer(command, folder)))
    layout = FONT_FACES.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(title="flagperf", theme=MONOKAI, code_format=layout, unique_id="session")


def _answer(command: str, folder: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FLAGPERF_RUNS_DIR")}
    environ |= {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "FLAGPERF_RUNS_DIR": str(ROOT / "tests/bundles/v1")}
    program, *arguments = command.split()
    done = subprocess.run(
        [*module_command(sys.executable, program), *arguments],
        cwd=folder, env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.replace(f"{ROOT}/tests/bundles/v1", "runs")


def badges() -> dict[str, str]:
    """File -> content; from pyproject.toml and VERSION, so that they are true."""
    project = read_toml(ROOT / "pyproject.toml")["project"]
    pythons = [found[1] for text in project["classifiers"] if (found := re.fullmatch(r".* :: (3\.\d+)", text))]
    version = (ROOT / "VERSION").read_text().strip()
    return {
        "badge-version.svg": badge("version", version),
        "badge-python.svg": badge("python", f"{pythons[0]} to {pythons[-1]}"),
        "badge-licence.svg": badge("licence", project["license"]),
    }


def badge(name: str, value: str) -> str:
    split, rest = 7 * len(name) + 12, 7 * len(value) + 9
    return BADGE.format(
        name=escape(name), value=escape(value), split=split, rest=rest, width=split + rest + 3,
        name_middle=split / 2, value_middle=split + rest / 2,
    )  # fmt: skip


def photograph(name: str, lang: str, folder: str) -> None:
    """The page that `report --format html` makes, in a real browser, down to the end of its first figure."""
    sys.path.append(str(ROOT / "tests"))  # a script finds only what is beside it
    from browser import browser

    page = Path(folder) / f"{lang}.html"
    _answer(f"flagperf report {RUN[:16]} --format html --lang {lang} --out {page}", folder)
    with browser() as started:
        shown = started.new_page(viewport={"width": 1000, "height": 2000}, color_scheme="light")
        shown.goto(f"file://{page}")
        end = shown.evaluate("document.querySelector('figure').getBoundingClientRect().bottom")
        shown.screenshot(path=str(PICTURES / name), clip={"x": 0, "y": 0, "width": 1000, "height": end + 8})


if __name__ == "__main__":
    sys.path.append(str(ROOT / "tests" / "report"))
    (PICTURES / "terminal.svg").write_text(terminal())
    for file, content in badges().items():
        (PICTURES / file).write_text(content)
    with tempfile.TemporaryDirectory() as scratch:
        for file, language in LANGUAGES.items():
            photograph(file, language, scratch)
