"""FLOPs per token by formula id. Figures of different formulas are not comparable.

With N parameters, L layers, H heads of size Q and T attended positions, attention costs 4 L H Q T per token forward,
half of it where a token sees only the ones before it; backward costs twice the forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from flagperf.metrics.entry import Absent, absent

if TYPE_CHECKING:
    from flagperf.metrics.rank_record import RankRecord


class ModelFacts(msgspec.Struct, frozen=True):
    parameters: int
    matmul_parameters: int
    layers: int
    heads: int
    head_size: int
    sequence: int
    causal: bool
    nominal_parameters: int | None = None
    lora_parameters: int | None = None

    @property
    def nominal(self) -> int:
        return self.parameters if self.nominal_parameters is None else self.nominal_parameters

    @property
    def width_times_length(self) -> int:
        """L H Q T."""
        return self.layers * self.heads * self.head_size * self.sequence

    @property
    def attention(self) -> int:
        """Forward FLOPs of attention per token, counting only the attended positions."""
        return (2 if self.causal else 4) * self.width_times_length


def model_facts(ranks: Sequence[RankRecord]) -> ModelFacts | Absent:
    described = [msgspec.structs.replace(model, t_ns=0) for record in ranks for model in record.models]
    if not described:
        return absent("not_measured", "flops.no_model")
    if any(model != described[0] for model in described):
        return absent("invalid_telemetry", "flops.different_models")
    return msgspec.convert(described[0], ModelFacts, from_attributes=True)


def nominal_6n(model: ModelFacts) -> int:
    return 6 * model.nominal


def nominal_2n(model: ModelFacts) -> int:
    return 2 * model.nominal


def palm(model: ModelFacts) -> int:
    """PaLM paper, appendix B: all parameters, attention never halved."""
    return 6 * model.parameters + 12 * model.width_times_length


def palm_infer(model: ModelFacts) -> int:
    return 2 * model.parameters + 4 * model.width_times_length


def exact(model: ModelFacts) -> int:
    return 6 * model.matmul_parameters + 3 * model.attention


def exact_lora(model: ModelFacts) -> int:
    """A frozen base has no weight gradients: forward and input gradients only; the adapters have all three."""
    return 4 * model.matmul_parameters + 6 * (model.lora_parameters or 0) + 3 * model.attention


def exact_infer(model: ModelFacts) -> int:
    return 2 * model.matmul_parameters + model.attention


FORMULAS: dict[str, Callable[[ModelFacts], int]] = {
    "nominal-6n": nominal_6n,
    "nominal-2n": nominal_2n,
    "palm": palm,
    "palm-infer": palm_infer,
    "exact": exact,
    "exact-lora": exact_lora,
    "exact-infer": exact_infer,
}


def utilisation(tokens_per_second: float, flops_per_token: int, peak: float) -> float:
    """Fraction of one device's peak FLOP/s that the model needed."""
    return tokens_per_second * flops_per_token / peak
