"""flagperf vendors new"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from flagperf import version
from flagperf.cli.options import common, echo_json, note
from flagperf.cli.output import echo_path
from flagperf.commands import pip_command
from flagperf.errors import BadInput
from flagperf.files import exists, is_folder
from flagperf.plugins.installed import load_plugins

TEMPLATE = Path(__file__).parents[1] / "testing" / "new_vendor"
TUNED = ("distilbert",)
"""Cases that the template has tuning for."""


@click.command("new")
@click.argument("name")
@click.option("--folder", metavar="DIR", help="Folder to write [default: ./flagperf-NAME].")
@common
def new_vendor(name: str, folder: str | None, as_json: bool) -> None:
    """Write a new adapter package whose tests pass. Replace what is marked `Yours:`."""
    _check_word(name)
    target = Path(folder or f"flagperf-{name}")
    files = write_adapter(name, target)
    if as_json:
        echo_json({"folder": str(target), "files": files})
        return
    for file in files:
        echo_path(target / file)
    test = shlex.join([sys.executable, "-m", "pytest"])
    note(f"next: cd {shlex.quote(str(target))} && {pip_command('install', '-e', '.')} && {test}")


def _check_word(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*", name):
        raise BadInput(f"{name!r} is not a vendor word; use one lower-case word of letters and digits, such as acme")
    for given in load_plugins().device_backends():
        if name in (given.value.vendor, *given.value.aliases):
            raise BadInput(f"{name!r} is already the word of {given.adapter}; choose another one")
    if importlib.util.find_spec(f"flagperf_{name}") is not None:
        raise BadInput(f"a package flagperf_{name} is already installed; choose another word, or uninstall it")


def write_adapter(name: str, target: Path) -> list[str]:
    """Writes all files or none."""
    if exists(target):
        raise BadInput(f"{target} already exists; choose another folder with --folder, or remove it")
    if not is_folder(target.parent):
        raise BadInput(f"{target.parent} is not a folder; create it, or choose another with --folder")
    try:
        with tempfile.TemporaryDirectory(prefix=".flagperf-new-", dir=target.parent) as beside:
            files = _write_files(name, Path(beside) / "package")
            (Path(beside) / "package").rename(target)
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror}") from None
    return files


def _write_files(name: str, root: Path) -> list[str]:
    words = {"@name@": name, "@Name@": name.capitalize(), "@NAME@": name.upper(), "@core@": version()}
    written = []
    for source in sorted(TEMPLATE.rglob("*.txt")):
        place = str(source.relative_to(TEMPLATE).with_suffix("")).replace("src/", f"src/flagperf_{name}/")
        path = root / _fill(place, words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(source.read_text(), words))
        written.append(str(path.relative_to(root)))
    return [*written, *(str(path.relative_to(root)) for path in _write_schemas(root / "schemas"))]


def _write_schemas(folder: Path) -> list[Path]:
    """Of the TOML files: editors that know `#:schema` complete and check them, without a network."""
    from flagperf.schemas import make_schema  # lazy: it needs most of flagperf

    plugins = load_plugins()
    schemas = {"models.json": make_schema("models", plugins)}
    schemas |= {f"tuning-{case}.json": make_schema("tuning", plugins, case) for case in TUNED}
    folder.mkdir()
    for name, schema in schemas.items():
        (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(schema)) + b"\n")
    return [folder / name for name in schemas]


def _fill(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(words), lambda found: words[found[0]], text)
