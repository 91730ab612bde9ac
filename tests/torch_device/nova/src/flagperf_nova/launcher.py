from __future__ import annotations

from flagperf.kit import TorchrunLauncher


class NovaLauncher(TorchrunLauncher):
    vendor = "nova"
    visibility_variables = ("NOVA_VISIBLE_DEVICES",)
