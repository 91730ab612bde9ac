"""Job: the complete plan of a run. It is passed to other processes as JSON and stored in the bundle."""

from __future__ import annotations

import msgspec

from flagperf.api import DataFile, Device, Peak, Precision, Recording
from flagperf.kinds import KINDS
from flagperf.spec.values import Resolved

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
        """The plugins that the processes of the run need."""
        return self.adapter, self.case_package, *self.operator_libraries.values()

    @property
    def world_size(self) -> int:
        return sum(len(node.devices) for node in self.nodes)

    @property
    def batch_size(self) -> int | None:
        """Batch size of one device, or None for a case without batches."""
        size = self.config.values.get(KINDS[self.kind].values, {}).get("batch_size")
        return size if isinstance(size, int) else None

    @property
    def peak(self) -> Peak | None:
        """The peak of this precision, which MFU is relative to."""
        return next((peak for peak in self.peaks if peak.row == self.precision.peak_row), None)

    @property
    def devices_per_node(self) -> int:
        return len(self.nodes[0].devices)

    @property
    def shape(self) -> str:
        return f"{len(self.nodes)}x{self.devices_per_node}"

    @property
    def device_model(self) -> Device:
        """The card that names the run."""
        return self.nodes[0].devices[0]
