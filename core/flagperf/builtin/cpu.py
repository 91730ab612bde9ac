"""The CPU as a vendor: the reference that an adapter author reads first.

Its devices are worker slots, `cpu:0` to `cpu:63`. They share the cores and the memory of the machine, so they may be
more than the cores: such a run works and is marked as oversubscribed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flagperf.api import Activation, Device, DeviceBackend, Machine, Precision, Presence
from flagperf.kit import TorchrunLauncher, memory_limit_bytes

NUM_SLOTS = 64


class CpuBackend(DeviceBackend):
    vendor = "cpu"
    title = {"en": "CPU", "zh": "CPU"}  # noqa: RUF012
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32", "bf16", "amp-bf16")
    memory_scope = "host"
    has_allocator = False
    is_fallback = True

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", (f"processor: {_model(machine)}",))

    def devices(self, machine: Machine) -> list[Device]:
        model, memory_bytes = _model(machine), memory_limit_bytes(machine)
        return [Device(f"cpu:{slot}", model, "CPU", slot, memory_bytes) for slot in range(NUM_SLOTS)]

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        import torch

        torch.set_num_threads(num_threads)
        return Activation("cpu", devices[local_rank].id, "slot")

    def set_precision(self, precision: Precision) -> None:
        """fp32 never computes in TF32 or bfloat16."""
        import torch

        torch.set_float32_matmul_precision("highest")

    def precision_switches(self) -> dict[str, str]:
        import torch

        return {"float32_matmul_precision": torch.get_float32_matmul_precision()}

    def synchronize(self) -> None:
        """Operators on the CPU have finished when they return."""

    def cache_bytes(self) -> int | None:
        """The largest that sysfs lists for the first core: `32768K`."""
        sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K")), default=None)

    def framework_state(self) -> dict[str, str]:
        import torch

        return {
            "torch": str(torch.__version__),
            "threads": str(torch.get_num_threads()),
            **self.precision_switches(),
        }


class CpuLauncher(TorchrunLauncher):
    vendor = "cpu"


def _model(machine: Machine) -> str:
    for line in (machine.read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "CPU"
