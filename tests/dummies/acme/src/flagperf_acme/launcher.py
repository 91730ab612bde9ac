from __future__ import annotations

import msgspec

from flagperf.api import LaunchCommand, NodeShare, Setting
from flagperf.kit import TorchrunLauncher


class AcmeLauncher(TorchrunLauncher):
    vendor = "acme"

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        command = super().command(share, python, worker_module)
        if share.num_workers * share.num_nodes == 1:
            settings = (*command.settings, *_single_rank(share))
            command = LaunchCommand((python, "-m", worker_module), settings)
        return msgspec.structs.replace(command, remove=("ACME_DEBUG",))

    def settings(self, share: NodeShare) -> list[Setting]:
        return [*super().settings(share), Setting("ACME_FAST", "1", "the cards are slow without it")]


def _single_rank(share: NodeShare) -> list[Setting]:
    """One worker needs nobody to start it."""
    values = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
        "MASTER_ADDR": share.master_address, "MASTER_PORT": str(share.master_port),
    }  # fmt: skip
    return [Setting(name, value, "a run of one worker") for name, value in values.items()]
