"""Builds the documentation site: `make docs-site`. A warning or a broken link is a failure, and leaves no site."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from links import problems
from sources import LANGUAGES, assemble


def main(site: Path) -> int:
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        work, built = Path(folder), Path(folder) / "built"
        for language in LANGUAGES:
            assemble(language, work / language)
            if code := build(language, work, built / LANGUAGES[language]):
                return code
        if found := problems(built.resolve()):
            print("\n".join(found), file=sys.stderr)
            return 1
        shutil.copytree(built, site)
    print(f"{site / 'index.html'}: {len(list(site.rglob('*.html')))} pages")
    return 0


def build(language: str, work: Path, built: Path) -> int:
    strict = ["--fail-on-warning", "--keep-going", "--quiet"]
    places = ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(work / f"{language}-doctrees")]
    command = [sys.executable, "-m", "sphinx", *strict, *places, "-D", f"language={language}"]
    environ = {**os.environ, "TMPDIR": str(work)}  # jieba leaves a file there
    return subprocess.run([*command, str(work / language), str(built)], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
