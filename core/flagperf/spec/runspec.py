"""RunSpec: the request for a run, as the user made it."""

from __future__ import annotations

import msgspec

from flagperf.errors import BadInput
from flagperf.escapes import is_utf8

MAX_COUNT = 100_000
"""Of nodes, and of devices of each: more than any site has, and few enough to be planned in seconds."""


class RunSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: str
    vendor: str | None = None
    nodes: int = 1
    devices: int = 1
    """Visible cards to use per node."""
    precision: str | None = None
    profile: str | None = None
    parallel: str | None = None
    """TPxPPyDPz, for a case with a layout."""
    set: tuple[str, ...] = ()
    config: str | None = None
    data_dir: str | None = None
    timeout_seconds: float | None = None
    sample_seconds: float = 1.0
    accept_low_peaks: bool = False
    peak_from: str | None = None
    """Bundle of a run of gemm, whose figure is the peak where the vendor's is unknown."""
    cluster: str = "local"
    cluster_options: tuple[str, ...] = ()
    """`name=value` each."""
    container: str | None = None
    """Image that the agents run in."""
    container_options: tuple[str, ...] = ()
    """`name=value` each."""
    interface: str | None = None
    """Network interface between the nodes."""
    record_operators: bool = False
    record_steps: int | None = None
    """How many steps to record."""
    replay: str | None = None
    """Path of the bundle whose recorded operators are replayed."""
    replay_rank: int | None = None
    """Whose of that run."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and not is_utf8(text):
                    raise BadInput(f"--{name.replace('_', '-')} {text!r} is not UTF-8, so it cannot be recorded")


def check_counts(spec: RunSpec) -> None:
    for name, value in (("--nodes", spec.nodes), ("--devices", spec.devices)):
        if not 1 <= value <= MAX_COUNT:
            raise BadInput(f"{name} must be at least 1 and at most {MAX_COUNT:,}; got {value}")
