"""Rules that the values of several cases have to keep; `check_files` calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flagperf.errors import BadInput


def check_shared(model: Mapping[str, Any], whole: str, part: str) -> None:
    if model[whole] % model[part]:
        raise BadInput(
            f"model.{whole}={model[whole]} cannot be shared by model.{part}={model[part]}; choose a multiple of it"
        )


def check_made_up_rows(data: Mapping[str, Any]) -> None:
    """0 stands for all rows of a file, and made-up data have no file."""
    for key in ("rows", "eval_rows"):
        if data["source"] == "synthetic" and not data[key]:
            raise BadInput(
                f"data.source=synthetic makes as many rows as data.{key} says, and it is 0; set it, e.g. to 1000"
            )
