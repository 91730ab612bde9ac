"""The adapters ask, and change nothing: no word of theirs is an option or a call that sets, resets or kills."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
NEVER = {
    "nvidia": r"-r|-pm|-pl|-[lr]gc|-[lr]mc|-r?ac|-c|-e|-mig|mig|drain|nvml\w*(Set|Reset|Clear)\w*",
    "metax": r"-r|--(vf)?flr|-u|-U|-y|-l|--force-vbios-flash|--dump-vbios|--kill-all-process|--set-.*",
    "hygon": r"-r|--hcureset|--(re)?set.*|--rasinject|--unloaddriver|--healthcheck",
    "kunlun": r"-r|-V|xpumlDeviceSet\w*",
}
"""Of the vendors' tools and libraries."""


def words(source: str) -> set[str]:
    """Every string of a source, whole and word by word."""
    strings = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return {word for text in strings if isinstance(text, str) for word in (text, *text.split())}


@pytest.mark.parametrize("vendor", NEVER)
def test_no_adapter_can_change_a_card(vendor: str) -> None:
    sources = sorted((PLUGINS / vendor / "src").rglob("*.py"))
    found = {word for path in sources for word in words(path.read_text()) if re.fullmatch(NEVER[vendor], word)}
    assert sources and found == set()


def test_a_call_that_does_is_found() -> None:
    asked = words('TOOL.run(machine, ("-i", "0", "--set-power-cap", "300"))')
    assert [word for word in asked if re.fullmatch(NEVER["metax"], word)] == ["--set-power-cap"]
