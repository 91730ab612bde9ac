"""How large core is and how it reads: `python -m bench.shape [FOLDER]` prints it for a checkout (this one by default).

Nothing is judged here. Lines and modules of each package, functions, docstrings, names that two modules share, and how
many modules a run and a page execute: for the engineer who asks whether the house has grown.
"""

from __future__ import annotations

import ast
import collections
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
MARKUP = re.compile(r"<(div|table|svg)\b")
NOT_A_VERB = re.compile(r"(of|for|in|from|with|by|whether|what|where|why|nothing|at|on|to|how)\b", re.IGNORECASE)
HOMES = {
    "RunSpec": "flagperf.spec.job", "Manifest": "flagperf.spec.manifest", "Plan": "flagperf.plan.plan",
    "Job": "flagperf.spec.job", "Fleet": "flagperf.fleet.fleet", "Session": "flagperf.run",
    "Context": "flagperf.worker.context", "Event": "flagperf.events", "RankRecord": "flagperf.metrics.rank_record",
    "NodeRecord": "flagperf.metrics.node_record", "Observed": "flagperf.metrics.observed",
    "MetricEntry": "flagperf.metrics.entry", "Metric": "flagperf.metrics.entry",
    "MeasuredRow": "flagperf.metrics.rows", "Run": "flagperf.bundle.run_record",
    "RecordedRun": "flagperf.bundle.run_record", "Rule": "flagperf.plausibility.rules",
    "Doubt": "flagperf.bundle.run_record", "Summary": "flagperf.report.summary",
    "Document": "flagperf.report.document", "Side": "flagperf.compare.sides",
    "Comparison": "flagperf.compare.comparison", "Kind": "flagperf.kinds", "Message": "flagperf.messages",
}  # fmt: skip
"""The nouns of the flow and the module that defines each."""

RECORDER = """
import os, sys
class Recorder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("flagperf", "flagperf_publish"):
            with open(os.path.join(os.environ["SHAPE_MODULES"], str(os.getpid())), "a") as file:
                file.write(name + "\\n")
sys.meta_path.insert(0, Recorder())
"""
"""As sitecustomize: each process writes the modules of flagperf that it looks for into a file of its own."""


class Module:
    def __init__(self, core: Path, path: Path) -> None:
        parts = path.relative_to(core).with_suffix("").parts
        self.name = ".".join(parts)
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self.num_lines = self.text.count("\n")

    @property
    def package(self) -> str:
        top, *rest = self.name.split(".")
        if top != "flagperf":
            return top
        return f"{top}.{rest[0]}" if len(rest) > 1 else top


def modules(folder: Path) -> list[Module]:
    core = folder / "core"
    return [Module(core, path) for path in sorted(core.rglob("*.py")) if "new_vendor" not in path.parts]


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def used_once(module: Module) -> int:
    """Count the private functions that are named in one other place of their module."""
    named = collections.Counter(re.findall(r"\b_[a-z]\w*\b", module.text))
    return sum(
        node.name.startswith("_") and not node.name.startswith("__") and named[node.name] == 2
        for node in functions(module)
    )


def docstrings(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text:
                yield text


def duplicates(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    places = collections.defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: sorted(found) for name, found in sorted(places.items()) if len(found) > 1}


def executed(folder: Path, *arguments: str, runs: Path) -> tuple[int, int]:
    """Run flagperf of a checkout. Return how many of its modules the command executed, and all processes together."""
    python = folder / ".venv/bin/python"
    with tempfile.TemporaryDirectory() as place:
        site, found = Path(place, "site"), Path(place, "found")
        site.mkdir()
        found.mkdir()
        (site / "sitecustomize.py").write_text(RECORDER)
        environ = {**os.environ, "PYTHONPATH": str(site), "SHAPE_MODULES": str(found)}
        command = [str(python if python.exists() else sys.executable), "-m", "flagperf", *arguments]
        with subprocess.Popen(
            command, env=environ, cwd=runs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            process.wait()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
        files = {path.name: set(path.read_text().split()) for path in found.iterdir()}
        return len(files[str(process.pid)]), len(set().union(*files.values()))


def lines_of(*patterns: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for folder in patterns for path in folder.rglob("*.py"))


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]).resolve() if arguments else HERE
    found = modules(folder)
    packages: dict[str, list[Module]] = collections.defaultdict(list)
    for module in found:
        packages[module.package].append(module)
    for package, members in sorted(packages.items()):
        print(f"{package:28} {len(members):4} modules {sum(each.num_lines for each in members):7} lines")
    for title, chosen in (
        (
            "core/flagperf without testing",
            [m for m in found if m.package not in ("flagperf_publish", "flagperf.testing")],
        ),
        ("flagperf.testing", packages["flagperf.testing"]),
        ("core/flagperf_publish", packages["flagperf_publish"]),
        ("all of core", found),
    ):
        print(f"{title:36} {len(chosen):4} modules {sum(each.num_lines for each in chosen):7} lines")
    cases = list((folder / "cases").rglob("*.py"))
    print(f"{'cases':36} {len(cases):4} modules {lines_of(folder / 'cases'):7} lines")
    tests = lines_of(folder / "tests", *folder.glob("plugins/*/tests"))
    print(f"tests, with those of adapters: {tests} lines")

    lengths = [node.end_lineno - node.lineno + 1 for each in found for node in functions(each) if node.end_lineno]
    print(f"functions: {len(lengths)}, median {statistics.median(lengths):.0f} lines, "
          f"90th percentile {statistics.quantiles(lengths, n=10)[-1]:.0f}")  # fmt: skip
    once, lines = sum(map(used_once, found)), sum(each.num_lines for each in found)
    print(f"private functions used once: {once}, {1000 * once / lines:.1f} per 1,000 lines")
    texts = [text for each in found for text in docstrings(each)]
    odd = sum(NOT_A_VERB.match(text) is not None for text in texts)
    print(f"docstrings: {len(texts)}, {100 * odd / len(texts):.1f} % begin with a preposition or a relative")

    in_core = [each for each in found if not each.name.startswith("flagperf.testing")]
    same_module = duplicates(
        (each.name.rpartition(".")[2], each.name) for each in in_core
        if each.name.rpartition(".")[2] not in ("__init__", "__main__") and ".cli." not in each.name
        and ".commands." not in each.name
    )  # fmt: skip
    same_class = duplicates(
        (node.name, each.name)
        for each in in_core for node in each.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )  # fmt: skip
    print(f"names of two modules: {len(same_module)} {', '.join(same_module)}")
    print(f"names of two public classes: {len(same_class)} {', '.join(same_class)}")
    classes = collections.defaultdict(list)
    for each in found:
        for node in each.tree.body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            for name in names:
                classes[name].append(each.name.removesuffix(".__init__"))
    lost = {name: classes[name] for name, home in HOMES.items() if classes[name] != [home]}
    print(f"nouns of the flow that are not at home: {len(lost)} {lost or ''}")
    core = [each for each in found if each.package != "flagperf_publish"]
    print(f"modules of core with markup: {[each.name for each in core if MARKUP.search(each.text)]}")
    print(f"modules of core that name publish: {[each.name for each in core if 'flagperf_publish' in each.text]}")
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place)
        print("modules executed by run distilbert (command, all processes):",
              *executed(folder, "run", "distilbert", "--runs-dir", "runs", runs=runs))  # fmt: skip
        print("modules executed by report --format html (command, all processes):",
              *executed(folder, "report", "latest", "--runs-dir", "runs", "--format", "html", runs=runs))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
