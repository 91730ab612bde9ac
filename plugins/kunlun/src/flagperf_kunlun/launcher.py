"""Workers on Kunlunxin cards: torch.distributed.run with both visibility variables, and one order of the cards."""

from __future__ import annotations

from flagperf.api import ContainerNeeds, NodeShare, Setting
from flagperf.kit import TorchrunLauncher

VISIBILITY_VARIABLES = ("XPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Which of them wins where they differ is not known."""


class KunlunLauncher(TorchrunLauncher):
    vendor = "kunlun"
    visibility_variables = VISIBILITY_VARIABLES
    forbidden_variables = ("XTORCHRUN_CLEAN", "CUDA_LAUNCH_BLOCKING")
    """The first kills every process that holds a card, whoever's it is; the second makes every kernel wait."""
    interface_variables = ("BKCL_SOCKET_IFNAME",)

    def container_needs(self) -> ContainerNeeds:
        """The tool is the driver's, and older releases write it with an underscore."""
        return ContainerNeeds(
            devices=("/dev/xpuctrl", "/dev/xpu[0-9]*"),
            mounts=("/usr/local/bin/xpu[-_]smi",),
            security_options=("seccomp=unconfined",),
        )

    def vendor_settings(self, share: NodeShare) -> list[Setting]:
        reason = "unset, the runtime orders cards by OAM_ID in runs of exactly 0,1,2,3,4,5,6,7 and otherwise not"
        return [Setting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", reason, only_if_unset=True)]
