"""What a package gives stands in its __all__, complete, in one order."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
from pathlib import Path

import pytest

import flagperf

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "core").rglob("__init__.py"))


def names_of(path: Path) -> list[str] | None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def ruff_order(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    """As ruff's RUF022 sorts: CONSTANTS, then Classes, then the rest, each by natural order."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]


PACKAGES_WITH_NAMES = [path for path in PACKAGES if names_of(path) is not None]


def module_of(path: Path) -> str:
    return ".".join(path.parent.relative_to(ROOT / "core").parts)


@pytest.mark.parametrize("path", PACKAGES_WITH_NAMES, ids=module_of)
def test_names_are_sorted_and_there(path: Path) -> None:
    names = names_of(path)
    assert names == sorted(names or (), key=ruff_order)
    module = importlib.import_module(module_of(path))
    assert [name for name in names or () if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", PACKAGES_WITH_NAMES, ids=module_of)
def test_all_that_a_package_imports_for_others_is_named(path: Path) -> None:
    imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if (node.module or "").startswith(f"{module_of(path)}.")]
    given = {alias.asname or alias.name for node in own for alias in node.names}
    assert given <= set(names_of(path) or ())


def test_stages_that_others_import_from_have_names() -> None:
    named = {module_of(path) for path in PACKAGES_WITH_NAMES}
    parts = ("api", "events", "kit", "metrics", "plan", "report", "spec", "launch", "worker")
    assert {f"flagperf.{part}" for part in parts} <= named


def test_store_gives_no_names_because_agents_and_workers_import_its_paths() -> None:
    assert names_of(ROOT / "core" / "flagperf" / "store" / "__init__.py") is None


def test_flagperf_itself_gives_one_function_and_its_version() -> None:
    assert flagperf.__all__ == ["run_case", "version"]
    assert callable(flagperf.run_case)
    assert flagperf.__version__ == flagperf.version() == importlib.metadata.version("flagperf")


def test_flagperf_itself_says_what_it_does_not_have() -> None:
    with pytest.raises(AttributeError, match="no attribute 'run_everything'"):
        flagperf.run_everything  # noqa: B018


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["run", "Run", "RUN_FILE", "EXIT"], ["EXIT", "RUN_FILE", "Run", "run"]),
        (["rank10", "rank9"], ["rank9", "rank10"]),
    ],
)
def test_the_order_is_ruffs(names: list[str], expected: list[str]) -> None:
    assert sorted(names, key=ruff_order) == expected
