"""Workers on Hygon cards: torch.distributed.run in the environment that DTK's script makes."""

from __future__ import annotations

from flagperf.api import Machine, TorchrunLauncher

ENV_SCRIPT = "/opt/dtk/env.sh"
VISIBILITY_VARIABLE = "HIP_VISIBLE_DEVICES"
OTHER_VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""HIP honours the first, and the second filters below both; what they mean together is not known on DTK."""


class HygonLauncher(TorchrunLauncher):
    vendor = "hygon"
    visibility_variables = (VISIBILITY_VARIABLE,)
    forbidden_variables = OTHER_VISIBILITY_VARIABLES

    def env_script(self, machine: Machine) -> str | None:
        """Without it torch does not import (libgalaxyhip.so.5 is not found); non-interactive shells do not load it."""
        script = machine.root / ENV_SCRIPT.lstrip("/")
        return str(script) if script.is_file() else None
