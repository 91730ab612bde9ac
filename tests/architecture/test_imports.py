"""Imports point one way: a reader of one stage never needs a later one."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_stages import STAGE_OF, module_name, problems

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [ROOT / "core", ROOT / "cases", *sorted(ROOT.glob("plugins/*/src"))]


@pytest.mark.parametrize("source_root", SOURCE_ROOTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_what_it_must_not(source_root: Path) -> None:
    found = []
    for path in sorted(source_root.rglob("*.py")):
        is_package = path.name == "__init__.py"
        found += problems(module_name(path, source_root), path.read_text(), is_package=is_package)
    assert not found, "\n".join(found)


def test_every_part_of_core_has_its_stage() -> None:
    parts = {path.stem for path in (ROOT / "core" / "flagperf").glob("*.py")} - {"__init__"}
    parts |= {path.parent.name for path in (ROOT / "core" / "flagperf").glob("*/__init__.py")}
    assert parts - {"builtin", "testing"} <= set(STAGE_OF)


# The checker itself, on sources that are made up


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("flagperf.plan.placement", "from flagperf.api import Device"),
        ("flagperf.plan.placement", "from flagperf.plan.nodes import describe_nodes"),
        ("flagperf.report.sections.rows", "from flagperf import units"),
        ("flagperf.events.schema", "from flagperf.api.memory import Reading"),
        ("flagperf.api.device", "def models():\n    from flagperf.kit.models_toml import read_models"),
        ("flagperf.kit.tools", "from flagperf.api.memory import Reading\nfrom flagperf.kit.pci import pci_address"),
        ("flagperf.agent.describe", "from flagperf.kit import allowed_cores"),
        ("flagperf.cli.run", "import flagperf.run, flagperf.plan"),
        ("flagperf.builtin.cpu", "from flagperf.api import Device\nfrom flagperf.builtin.local import LocalCluster"),
        ("flagperf.testing.conformance", "from flagperf.plugins import load_plugins\nfrom flagperf import testing"),
        ("flagperf", "from flagperf.run import run_case"),
        ("flagperf_cases.glm.case", "from flagperf.worker import Context\nfrom flagperf_cases.glm.data import load"),
        ("flagperf_cases.glm.case", "from flagperf_cases.sampler import TrainingSampler\nimport torch"),
        ("flagperf_metax.device", "from flagperf.kit import Card\nfrom flagperf_metax.smi import parse"),
        ("flagperf.worker.context", "def use():\n    import torch"),
        ("flagperf.worker.context", "if TYPE_CHECKING:\n    from accelerate import Accelerator"),
        ("flagperf.worker.context", "if typing.TYPE_CHECKING:\n    import torch"),
        ("flagperf.worker.context", "class A:\n    def use(self):\n        import torch.nn"),
        ("flagperf.worker.context", "import torchless"),
        ("flagperf.worker.gradient_scaler", "import torch"),
        ("flagperf.worker.context", "def use():\n    from flagperf.worker.accelerator import make_accelerator"),
        ("flagperf.worker.simulated", "def use():\n    from flagperf.testing.torch_device import install"),
    ],
)
def test_what_is_allowed(module: str, source: str) -> None:
    assert problems(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("flagperf.spec.job", "from flagperf.plan import make_plan", "spec (stage 3) imports plan (stage 7)"),
        ("flagperf.spec.job", "def late():\n    from flagperf.plan import make_plan", "imports plan"),
        ("flagperf.spec.job", "if TYPE_CHECKING:\n    from flagperf.plan import Plan", "imports plan"),
        ("flagperf.spec.job", "import flagperf.plan.placement as site", "imports plan"),
        ("flagperf.spec.job", "from flagperf import plan", "imports plan"),
        ("flagperf.spec.job", "from ..plan.placement import Placement", "imports plan"),
        ("flagperf.spec.job", "from .. import plan", "imports plan"),
        ("flagperf.plan.plan", "from flagperf.agent.describe import describe", "agent is a program of its own"),
        ("flagperf.cli.run", "def late():\n    from flagperf.worker import context", "worker is a program of its own"),
        ("flagperf.agent.run", "from flagperf.fleet import Fleet", "agent (stage 6) imports fleet (stage 6)"),
        ("flagperf.plugins.loading", "from flagperf.store import Run", "plugins (stage 5) imports store (stage 5)"),
        ("flagperf.api.device", "from flagperf.kit import read_models", "api (stage 1) imports kit (stage 2)"),
        ("flagperf.kit.cpus", "from flagperf.events import Clock", "kit (stage 2) imports events (stage 2)"),
        ("flagperf_cases.glm.case", "from flagperf.kit import Tool", "a case may import"),
        ("flagperf.units", "from flagperf.errors import BadInput", "units (stage 0) imports errors (stage 0)"),
        ("flagperf.plan.placement", "from flagperf import run_case", "run_case has no stage"),
        ("flagperf.plan.placement", "import flagperf", "flagperf itself has no stage"),
        ("flagperf.novelty.a", "from flagperf.api import Device", "novelty has no stage"),
        ("flagperf", "from flagperf.cli import main", "nothing of cli"),
        ("flagperf.builtin.cpu", "from flagperf.spec import Job", "a vendor may import"),
        ("flagperf.cli.vendors", "from flagperf.testing import conformance", "testing is imported by nothing"),
        ("flagperf.worker.simulated", "from flagperf.testing import torch_device", "testing is imported by nothing"),
        ("flagperf.worker.context", "from flagperf.worker.accelerator import x", "do it in the function that needs it"),
        ("flagperf.plan.plan", "import flagperf_cases.glm", "never imported"),
        ("flagperf_cases.glm.case", "from flagperf.events import StepFinished", "a case may import"),
        ("flagperf_cases.glm.case", "from flagperf_cases.distilbert.data import rows", "belongs to another case"),
        ("flagperf_metax.device", "from flagperf.plugins import load_plugins", "a vendor may import"),
        ("flagperf.worker.context", "import torch", "torch is imported with the module"),
        ("flagperf.worker.context", "from torch.nn import Linear", "torch.nn is imported with the module"),
        ("flagperf.worker.context", "try:\n    import peft\nexcept ImportError:\n    peft = None", "peft is imported"),
        ("flagperf.worker.context", "class A:\n    import transformers", "transformers is imported"),
        ("flagperf.worker.context", "if TYPE_CHECKING:\n    pass\nelse:\n    import accelerate", "accelerate is"),
        ("flagperf_nvidia.device", "import pynvml", "pynvml is imported with the module"),
    ],
)  # fmt: skip
def test_what_is_refused(module: str, source: str, reason: str) -> None:
    (found,) = problems(module, source)
    assert reason in found


def test_a_package_resolves_relative_imports_from_itself() -> None:
    assert problems("flagperf.plan", "from .placement import Placement", is_package=True) == []
    assert problems("flagperf.plan", "from ..cli import main", is_package=True) != []


def test_modules_are_named_after_their_files(tmp_path: Path) -> None:
    assert module_name(tmp_path / "flagperf" / "plan" / "placement.py", tmp_path) == "flagperf.plan.placement"
    assert module_name(tmp_path / "flagperf" / "plan" / "__init__.py", tmp_path) == "flagperf.plan"
