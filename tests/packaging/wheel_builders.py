"""The distributions of this repository, wheels that only have metadata, and environments to install them into."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ADAPTERS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
SOURCES = (
    *("core", "cases", "docs", "plugins", "Makefile", "constraints.txt", "pyproject.toml", "VERSION", ".gitignore"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
)
PIP = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]


def make_dist(folder: Path) -> Path:
    """What `make dist` builds from a copy of the sources in this folder."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "dist", f"DIST={ROOT / '.venv-dist'}"]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def make_environment(folder: Path, *distributions: str) -> Path:
    """A virtual environment in which just these distributions, linked from ours, are installed. Gives its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in with_dependencies(distributions):
        _link(importlib.metadata.distribution(name), site)
    return folder / "bin" / "python"


def with_dependencies(names: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop().lower()
        if name in found:
            continue
        found[name] = None
        required = importlib.metadata.distribution(name).requires or []
        pending += [re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in required if ";" not in each]
    return list(found)


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    for top in {Path(file).parts[0] for file in distribution.files or () if ".." not in Path(file).parts}:
        source, target = Path(str(distribution.locate_file(top))), site / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def pretend_installed(python: Path, name: str, version: str) -> None:
    """A distribution that has metadata and a module of nothing, like a vendor's build as far as pip can tell."""
    site = next(python.parent.parent.glob("lib/python*/site-packages"))
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("a vendor's image\n")
    (folder / "RECORD").write_text("")


def write_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    """A wheel with metadata alone."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def install(python: Path, dist: Path, *names: str) -> None:
    offline = ["--quiet", "--no-index", f"--find-links={dist}"]
    subprocess.run([*PIP, "--python", str(python), "install", *offline, *names], check=True)


def would_install(python: Path, folders: list[Path], *arguments: str) -> dict[str, str]:
    """Name -> version of what pip would install."""
    links = [f"--find-links={folder}" for folder in folders]
    options = ["--dry-run", "--quiet", "--no-index", "--report", "-"]
    done = subprocess.run(
        [*PIP, "--python", str(python), "install", *options, *links, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: Any = json.loads(done.stdout)
    return {each["metadata"]["name"]: each["metadata"]["version"] for each in report["install"]}
