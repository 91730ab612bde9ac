"""RunSpec, the request for a run as the user made it, and Job, its complete plan.

A Job is passed to other processes as JSON and stored in the bundle.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.api import DataFile, Device, Peak, Precision, Recording
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.spec.values import Resolved
from flagperf.text import is_utf8

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


WORKER_MODULE = "flagperf.worker"


class PlannedNode(msgspec.Struct, frozen=True):
    index: int
    address: str
    host: str
    devices: tuple[Device, ...]
    allowed_cores: int


class Job(msgspec.Struct, frozen=True):
    run_id: str
    case: str
    case_version: int
    kind: str
    """Kind of the case: a key of flagperf.kinds.KINDS."""
    case_target: str
    """`module:function` of the case."""
    profile: str
    precision: Precision
    vendor: str
    vendor_title: dict[str, str]
    adapter: str
    """Distribution and version of the vendor's plugin."""
    config: Resolved
    nodes: tuple[PlannedNode, ...]
    master_address: str
    master_port: int
    host_workers: int
    memory_scope: str
    has_allocator: bool
    peaks: tuple[Peak, ...]
    """Peak figures of the card: one row per precision, memory_bandwidth, link_bandwidth, tdp. Empty for a slice of
    one."""
    accept_low_peaks: bool
    oversubscribed: bool
    sample_seconds: float
    timeout_seconds: float | None
    data_dir: str | None
    data_files: tuple[DataFile, ...]
    simulated: bool = False
    """The cards are simulated by a test. Reports always mark such runs."""
    case_package: str = ""
    """Distribution and version of the plugin that gives the case."""
    record_steps: int = 0
    """The operators of so many steps, the last ones, are recorded. 0: none."""
    recording: Recording | None = None
    """The operator calls to replay."""
    operator_libraries: dict[str, str] = {}
    """Library of operators that the values name -> distribution and version of the plugin that gives it."""

    @property
    def plugins(self) -> tuple[str, ...]:
        """Return the plugins that the processes of the run need."""
        return self.adapter, self.case_package, *self.operator_libraries.values()

    @property
    def world_size(self) -> int:
        return sum(len(node.devices) for node in self.nodes)

    @property
    def batch_size(self) -> int | None:
        """Return the batch size of one device, or None for a case without batches."""
        size = self.config.values.get(KINDS[self.kind].values, {}).get("batch_size")
        return size if isinstance(size, int) else None

    @property
    def peak(self) -> Peak | None:
        """Return the peak of this precision, which MFU is relative to."""
        return next((peak for peak in self.peaks if peak.row == self.precision.peak_row), None)

    @property
    def devices_per_node(self) -> int:
        return len(self.nodes[0].devices)

    @property
    def shape(self) -> str:
        return f"{len(self.nodes)}x{self.devices_per_node}"

    @property
    def device_model(self) -> Device:
        """Return the card that names the run."""
        return self.nodes[0].devices[0]


def fingerprint(value: Any) -> str:
    """Return the sha256 of a decoded JSON value, serialised with sorted keys and no spaces."""
    import hashlib  # lazy imports: every command imports this module, few call it
    import json

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
