"""What does not stand in the source: vendors' names where every vendor is served, shortcuts, too long functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from source_rules import forbidden_constructs, kind_comparisons, vendor_comparisons, vendor_words

ROOT = Path(__file__).parents[2]
CORE, CASES = ROOT / "core" / "flagperf", ROOT / "cases"
SHARED = [path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in ("builtin", "testing")]
SOURCES = [*CORE.rglob("*.py"), *CASES.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("bench/**/*.py")]


def complaints(rule: Callable[[str], list[str]], paths: list[Path]) -> str:
    return "\n".join(f"{path.relative_to(ROOT)}: {found}" for path in sorted(paths) for found in rule(path.read_text()))


def test_core_names_no_vendor() -> None:
    assert len(SHARED) > 50
    assert complaints(vendor_words, SHARED) == ""


def test_no_case_asks_which_vendor_this_is() -> None:
    paths = list(CASES.rglob("*.py"))
    assert paths
    assert complaints(vendor_comparisons, paths) == ""
    assert complaints(vendor_words, paths) == ""


def test_nothing_but_the_kinds_themselves_asks_for_the_kind_of_a_case() -> None:
    assert complaints(kind_comparisons, [path for path in CORE.rglob("*.py") if path.parent.name != "kinds"]) == ""


def test_no_shell_no_swallowed_exception_nothing_left_to_do() -> None:
    assert complaints(forbidden_constructs, SOURCES) == ""


# The rules themselves, on sources that are made up


@pytest.mark.parametrize(
    "source",
    [
        'if manifest.kind == "inference": pass',
        'x = "training" != kind',
        'if kind in ("training", "base"): pass',
        'match kind:\n    case "training":\n        pass',
        'KINDS["training"].sections',
    ],
)
def test_a_question_for_the_kind_is_found(source: str) -> None:
    assert len(kind_comparisons(source)) >= 1


def test_a_kind_may_be_looked_up_by_the_name_that_the_case_says() -> None:
    assert kind_comparisons('KINDS[manifest.kind].words["results"]; ctx.training("training")') == []


@pytest.mark.parametrize(
    "source",
    [
        "device = 'cuda'",
        "use_cuda = True",
        "import pynvml",
        "x = f'/opt/{name}/maca'",
        "def is_metax(): ...",
        "a = 1  # NCCL needs this",
        "torch.xpu.synchronize()",
        'x = """a text that\nspeaks of ROCm"""',
    ],
)
def test_a_vendors_word_is_found_in_names_texts_and_comments(source: str) -> None:
    assert len(vendor_words(source)) == 1


def test_only_the_page_that_a_rule_is_drawn_from_may_be_a_vendors() -> None:
    assert (
        vendor_words(
            'RULE = Rule(\n    "a",\n    published=(\n        "nvidia: "\n        "training/nvidia"\n    ),\n)'
        )
        == []
    )
    assert len(vendor_words('RULE = Rule(\n    "cuda",\n    published="training",\n)')) == 1
    assert len(vendor_words('Note(published="nvidia")')) == 1


@pytest.mark.parametrize(
    "source",
    [
        "if ctx.vendor == name: pass",
        "if word == 'cuda': pass",
        "if kind in ('nvidia', 'metax'): pass",
        "if tensor.device.type == 'cpu': pass",
        "x = 1 if backend.torch_type != 'cpu' else 2",
        "match ctx.vendor:\n    case 'a': pass",
        "if job.vendor.startswith('k'): pass",
        "if vendor in special: pass",
    ],
)
def test_asking_for_the_vendor_is_found(source: str) -> None:
    assert len(vendor_comparisons(source)) == 1


@pytest.mark.parametrize(
    "source",
    ["if values['type'] == 'sgd': pass", "if ctx.rank == 0: pass", "x.to(ctx.device)", "if kind == 'cpus': pass"],
)
def test_other_questions_are_not(source: str) -> None:
    assert vendor_comparisons(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "run(command, shell=True)",
        "run(command, shell=flag)",
        "try:\n    a()\nexcept Exception:\n    pass",
        "try:\n    a()\nexcept:\n    ...",
        "try:\n    a()\nexcept (OSError, BaseException) as error:\n    pass",
        "for x in y:\n    try:\n        a()\n    except Exception:\n        continue",
        "with contextlib.suppress(Exception):\n    a()",
        "a = 1  # " + "TODO" + " later",
    ],
)
def test_a_shortcut_is_found(source: str) -> None:
    assert len(forbidden_constructs(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "run(command, shell=False)",
        "try:\n    a()\nexcept OSError:\n    pass",
        "try:\n    a()\nexcept Exception as error:\n    problems.append(error)",
        "with contextlib.suppress(BrokenPipeError):\n    a()",
    ],
)
def test_what_is_no_shortcut_is_not(source: str) -> None:
    assert forbidden_constructs(source) == []
