from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import CardModel, Peak
from flagperf.errors import BadInput
from flagperf.kit import find_model, read_models

MODELS = """
[[model]]
name = "K100"
short_name = "K100"
name_pattern = "^K100$"
unsupported = { tf32 = "a talk" }

[[model]]
name = "K100_AI"
short_name = "K100-AI"
name_pattern = "^K100_AI$"
pci_ids = ["6210"]
[[model.peak]]
row = "fp16"
value = 192e12
source = "a talk"
confidence = "low"
"""


@pytest.fixture
def models(tmp_path: Path) -> tuple[CardModel, ...]:
    (tmp_path / "models.toml").write_text(MODELS)
    return read_models(tmp_path / "models.toml")


def test_models_carry_their_peaks_and_what_they_cannot_compute(models: tuple[CardModel, ...]) -> None:
    found = [(model.peaks, model.unsupported) for model in models]
    assert found == [((), {"tf32": "a talk"}), ((Peak("K100_AI", "fp16", 192e12, "a talk", "low"),), {})]


@pytest.mark.parametrize(
    ("names", "pci_id", "found"),
    [
        (("K100",), "", "K100"),
        (("K100_AI",), "", "K100_AI"),
        (("K100",), "6210", "K100_AI"),
        (("nothing", "K100"), "ffff", "K100"),
        (("K100X",), "", None),
        (("K10",), "", None),
        ((), "", None),
    ],
)
def test_a_card_is_a_model_by_its_id_else_by_its_whole_name(
    models: tuple[CardModel, ...], names: tuple[str, ...], pci_id: str, found: str | None
) -> None:
    model = find_model(models, names, pci_id)
    assert (model.name if model else None) == found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"low"', '"perhaps"', "confidence"),
        ("short_name", "shortname", "shortname"),
        ('"^K100$"', '"^K100($"', "unterminated subpattern"),
        ("192e12", '"fast"', "float"),
        ("[[model]]\nname", "[[model]\nname", "models.toml"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(MODELS.replace(old, new, 1))
    with pytest.raises(BadInput, match=words) as caught:
        read_models(path)
    assert str(path) in str(caught.value)
