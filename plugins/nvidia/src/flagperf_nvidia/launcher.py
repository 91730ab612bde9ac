"""How workers start on NVIDIA cards."""

from __future__ import annotations

from flagperf.api import ContainerNeeds, Device, NodeShare, Setting
from flagperf.errors import Unsupported
from flagperf.kit import TorchrunLauncher


class NvidiaLauncher(TorchrunLauncher):
    vendor = "nvidia"
    gres_word = "gpu"
    visibility_variables = ("CUDA_VISIBLE_DEVICES",)
    forbidden_variables = ("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    """The first makes every kernel wait, so that steps take longer than they do; the others compute in TF32, or not,
    whatever the precision of the run says."""
    interface_variables = ("NCCL_SOCKET_IFNAME",)

    def visible_name(self, device: Device) -> str:
        """The UUID: no order of cards changes what it means, and a MIG slice has no other name."""
        return device.uuid or str(device.physical_index)

    def container_needs(self) -> ContainerNeeds:
        """The driver's libraries come from the host, with the device files: what they are is in the CDI name."""
        return ContainerNeeds(devices=("nvidia.com/gpu=all",), apptainer_options=("--nv",))

    def vendor_settings(self, share: NodeShare) -> list[Setting]:
        if share.num_workers * share.num_nodes > 1 and any(device.slice for device in share.devices):
            raise Unsupported(
                "a run of several workers on MIG slices: a process sees one slice, and NCCL joins whole cards; "
                "use --devices 1"
            )
        settings = [Setting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "the order of nvidia-smi; CUDA's own is by speed")]
        if share.num_workers * share.num_nodes > 1:
            reason = "a rank that fails ends the others, which would wait for it in a collective"
            settings.append(Setting("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", reason, only_if_unset=True))
        return settings
