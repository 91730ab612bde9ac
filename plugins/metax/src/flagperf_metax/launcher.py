"""How workers start on MetaX cards: torchrun, with both visibility variables kept equal."""

from __future__ import annotations

from flagperf.api import ContainerNeeds, NodeShare, Setting
from flagperf.kit import TorchrunLauncher

VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "MACA_VISIBLE_DEVICES")
"""The runtime reads both; which of them wins where they differ is not documented."""


class MetaxLauncher(TorchrunLauncher):
    vendor = "metax"
    visibility_variables = VISIBILITY_VARIABLES
    forbidden_variables = ("CUDA_LAUNCH_BLOCKING", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    """torch reads both, whoever built it: kernels that wait for each other, and TF32 where the run says fp32."""
    interface_variables = ("MCCL_SOCKET_IFNAME",)

    def settings(self, share: NodeShare) -> list[Setting]:
        """Slices keep the visibility that they inherit: how the runtime numbers several of one card is not documented,
        and a wrong number would hide them. The workers join them by UUID."""
        settings = super().settings(share)
        if not any(device.slice for device in share.devices):
            return settings
        return [setting for setting in settings if setting.name not in self.visibility_variables]

    def container_needs(self) -> ContainerNeeds:
        return ContainerNeeds(
            devices=("/dev/mxcd", "/dev/dri"),
            groups=("video",),
            security_options=("seccomp=unconfined", "apparmor=unconfined"),
        )

    def vendor_settings(self, share: NodeShare) -> list[Setting]:
        reason = "where MetaX's images keep the MACA toolkit"
        return [Setting("MACA_PATH", "/opt/maca", reason, only_if_unset=True)]
