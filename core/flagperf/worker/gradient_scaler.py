"""Dynamic loss scaling for float16, on any device."""

from __future__ import annotations

import torch
from torch.amp.grad_scaler import OptState


class GradientScaler(torch.amp.GradScaler):  # type: ignore[misc]
    """torch's own takes the reciprocal of the scale in float64, which some cards do not have. Scales are powers of two,
    whose reciprocals are exact in float32 as well."""

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if not self.is_enabled():
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is not OptState.READY:
            raise RuntimeError("unscale_() was called after unscale_() or step() of the same step")
        found_inf = torch.zeros((), dtype=torch.float32, device=self._scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, self._scale.reciprocal(), found_inf, False)
        state["stage"] = OptState.UNSCALED
