"""Which card a user means who has none of them here. Plugins are a stand-in with two vendors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from plan_builders import manifest
from plan_builders import plugins as stand_in

from flagperf.errors import BadInput
from flagperf.plan.card_models import find_model
from flagperf.spec.published import PublishedResult
from minimal_backend import MinimalBackend

MODELS = """
[[model]]
name = "A1-80GB"
short_name = "A1"
name_pattern = "^(ACME )?Accelerator 1$"
[[model.peak]]
row = "bf16"
value = 2e12
source = "a page"
confidence = "high"

[[model]]
name = "A2"
short_name = "A2"
name_pattern = "^A2$"

[[model]]
name = "A2-wide"
short_name = "A2"
name_pattern = "^A2W$"
"""
OTHER_MODELS = '[[model]]\nname = "B1"\nshort_name = "A2-wide"\nname_pattern = "^Accelerator 1$"\n'
TUNING = '[[tuning]]\nmodel = "ACME A9"\nsource = "a page"\n[tuning.values.training]\nbatch_size = 8\n'


class FolderBackend(MinimalBackend):
    def __init__(self, vendor: str, folder: Path, models: str, tuning: str = "") -> None:
        self.vendor = vendor  # type: ignore[misc]
        self._folder = folder / vendor
        (self._folder / "tuning").mkdir(parents=True)
        (self._folder / "models.toml").write_text(models)
        if tuning:
            (self._folder / "tuning" / "toy.toml").write_text(tuning)

    def data_folder(self) -> Path:
        return self._folder


def plugins(*backends: FolderBackend, references: tuple[PublishedResult, ...] = ()) -> Any:
    case = SimpleNamespace(manifest=msgspec.structs.replace(manifest(), references=references))
    return stand_in(*backends, broken=["old 1: too old"], complete_cases=lambda: {"toy": case})


@pytest.fixture
def both(tmp_path: Path) -> Any:
    return plugins(FolderBackend("acme", tmp_path, MODELS, TUNING), FolderBackend("bits", tmp_path, OTHER_MODELS))


def published(device: str, vendor: str = "acme", **values: float) -> PublishedResult:
    return PublishedResult(vendor, device, 1, 1, "fp32", "none", "a page", values)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A1-80GB", "A1-80GB"), ("a1-80gb", "A1-80GB"), ("a1", "A1-80GB"), ("acme accelerator 1", "A1-80GB"),
        ("A2", "A2"), ("b1", "B1"), ("B1-32GB", "B1"), ("acme a9", "ACME A9"), ("A9", "ACME A9"),
    ],
)  # fmt: skip
def test_a_card_goes_by_all_names_that_its_adapter_has_in_any_case(both: Any, text: str, name: str) -> None:
    assert find_model(both, text, None).name == name


def test_a_card_has_its_own_peaks_and_goes_before_one_that_is_also_called_so(both: Any) -> None:
    assert [peak.value for peak in find_model(both, "A1", None).peaks] == [2e12]
    assert find_model(both, "A2", None).peaks == ()
    assert find_model(both, "a2-wide", None).vendor == "acme"
    assert not find_model(both, "A1", None).is_called("my accelerator 1")  # a pattern matches the whole name


def test_a_name_that_two_vendors_have_needs_a_vendor(both: Any) -> None:
    with pytest.raises(BadInput, match=r"several adapters know it \(A1-80GB of acme, B1 of bits\); choose .* --vendor"):
        find_model(both, "accelerator 1", None)
    assert find_model(both, "accelerator 1", "Bits").name == "B1"


def test_an_unknown_name_comes_with_all_known_ones_and_what_is_wrong_with_adapters(both: Any) -> None:
    with pytest.raises(BadInput) as caught:
        find_model(both, "A3", None)
    assert str(caught.value) == (
        "--device-model A3: no installed adapter knows it (old 1: too old). "
        "Known models: acme: A1-80GB, A2, A2-wide, ACME A9; bits: B1"
    )
    with pytest.raises(BadInput, match=r"the adapter of bits does not know it .*Known models: bits: B1$"):
        find_model(both, "A1", "bits")


def test_an_adapter_that_fails_hides_no_other(tmp_path: Path) -> None:
    given = plugins(FolderBackend("acme", tmp_path, "not toml"), FolderBackend("bits", tmp_path, OTHER_MODELS))
    assert find_model(given, "B1", None).vendor == "bits"
    with pytest.raises(BadInput, match=r"flagperf-acme 1: .*models\.toml"):
        find_model(given, "A1", None)


def test_a_card_of_published_results_names_the_package_that_is_missing(tmp_path: Path) -> None:
    given = plugins(FolderBackend("bits", tmp_path, OTHER_MODELS), references=(published("Z9-16GB", "zeta"),))
    with pytest.raises(BadInput, match="it comes with the package flagperf-zeta: install that"):
        find_model(given, "z9", None)


def test_memory_is_what_published_results_of_this_card_say_else_its_name(both: Any) -> None:
    references = [published("A2-64GB", "bits", mem_total=1), published("A2-64GB", mem_total=64 * 2**30)]
    small, large = find_model(both, "A2", None), find_model(both, "A1", None)
    assert small.memory_bytes(references) == (64 * 2**30, "nominal, of the published A2-64GB")
    assert large.memory_bytes(references) == (80 * 2**30, "nominal, by the name A1-80GB")
    assert small.memory_bytes([published("A2")]) == (None, "no published result names A2")
