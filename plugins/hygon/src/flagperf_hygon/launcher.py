"""Workers on Hygon cards: torch.distributed.run in the environment that DTK's script makes."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import ContainerNeeds, Machine
from flagperf.errors import BadInput
from flagperf.kit import TorchrunLauncher

ENV_SCRIPT_VARIABLE = "FLAGPERF_HYGON_ENV_SCRIPT"
VISIBILITY_VARIABLE = "HIP_VISIBLE_DEVICES"
OTHER_VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""HIP honours the first, and the second filters below both; what they mean together is not known on DTK."""


class HygonLauncher(TorchrunLauncher):
    vendor = "hygon"
    gres_word = "dcu"
    visibility_variables = (VISIBILITY_VARIABLE,)
    forbidden_variables = (
        *OTHER_VISIBILITY_VARIABLES,
        "HIP_LAUNCH_BLOCKING",
        "AMD_SERIALIZE_KERNEL",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    )
    """Besides what names other cards: kernels that wait for each other, and TF32 where the run says fp32."""
    interface_variables = ("NCCL_SOCKET_IFNAME",)
    env_script_path = "/opt/dtk/env.sh"

    def container_needs(self) -> ContainerNeeds:
        """hyhal has to match the driver, so it is the host's. Newer drivers have /dev/mkfd too."""
        return ContainerNeeds(
            devices=("/dev/kfd", "/dev/mkfd*", "/dev/dri"),
            groups=("video",),
            mounts=("/opt/hyhal",),
            security_options=("seccomp=unconfined",),
        )

    def env_script(self, machine: Machine) -> str | None:
        """Without it torch does not import (libgalaxyhip.so.5 is not found); non-interactive shells do not load it."""
        script = dtk_script(machine)
        return str(script) if script else None


def dtk_script(machine: Machine) -> Path | None:
    """The one that the user names, else that of /opt/dtk, else of the one release in a folder of its own."""
    named = machine.environ.get(ENV_SCRIPT_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise BadInput(f"{ENV_SCRIPT_VARIABLE}={named!r} is not a file: name DTK's env.sh, or unset it")
        return Path(named)
    scripts = machine.glob("/opt/dtk/env.sh") or machine.glob("/opt/dtk-*/env.sh")
    if len(scripts) > 1:
        listed = ", ".join(map(str, scripts))
        raise BadInput(
            f"several releases of DTK are here and no /opt/dtk: set {ENV_SCRIPT_VARIABLE} to one of {listed}"
        )
    return scripts[0] if scripts else None
