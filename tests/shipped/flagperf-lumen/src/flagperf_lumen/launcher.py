"""How workers start on a node with Lumen cards."""

from __future__ import annotations

from flagperf.api import NodeShare, Setting, TorchrunLauncher


class LumenLauncher(TorchrunLauncher):
    vendor = "lumen"
    visibility_variables = ("LUMEN_VISIBLE_DEVICES",)
    forbidden_variables = ()  # Yours: what must never reach a worker

    def vendor_settings(self, share: NodeShare) -> list[Setting]:
        return []  # Yours: settings of your collective library, each with its reason
