"""Checks of configuration values that several cases share. `check_files` of a case calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flagperf.errors import BadInput


def check_divisible(model: Mapping[str, Any], whole: str, part: str) -> None:
    if model[whole] % model[part]:
        raise BadInput(
            f"model.{whole}={model[whole]} is not divisible by model.{part}={model[part]}; choose a multiple of it"
        )


def check_synthetic_rows(data: Mapping[str, Any]) -> None:
    """0 means all rows of a file, and synthetic data has no file."""
    for key in ("rows", "eval_rows"):
        if data["source"] == "synthetic" and not data[key]:
            raise BadInput(
                f"data.source=synthetic generates as many rows as data.{key} says, and it is 0; set it, e.g. to 1000"
            )
