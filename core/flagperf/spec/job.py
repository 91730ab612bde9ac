"""Job: what will be done, complete. It crosses the process border as JSON and is stored in the bundle."""

from __future__ import annotations

import msgspec

from flagperf.api import DataFile, Device, NodeShare, Peak, Precision
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
    """Of the case: a module of flagperf.kinds."""
    case_target: str
    """`module:function` of the case."""
    profile: str
    precision: Precision
    vendor: str
    vendor_title: dict[str, str]
    adapter: str
    """Distribution and version of the plugin that serves the vendor."""
    config: Resolved
    nodes: tuple[PlannedNode, ...]
    master_address: str
    master_port: int
    host_workers: int
    memory_scope: str
    has_allocator: bool
    peaks: tuple[Peak, ...]
    """All ceilings of the card: a row for each precision, memory_bandwidth, tdp. None for a slice of a card."""
    accept_low_peaks: bool
    oversubscribed: bool
    sample_seconds: float
    timeout_seconds: float | None
    data_dir: str | None
    data_files: tuple[DataFile, ...]
    simulated: bool = False
    """The cards are a test's, and torch computes on the CPU: marked wherever the run is shown."""

    @property
    def world_size(self) -> int:
        return sum(len(node.devices) for node in self.nodes)

    @property
    def batch_size(self) -> int | None:
        """Of one device; None for a case that does not work in batches."""
        size = self.config.values.get(KINDS[self.kind].values, {}).get("batch_size")
        return size if isinstance(size, int) else None

    @property
    def peak(self) -> Peak | None:
        """The ceiling that MFU divides by: of this precision."""
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

    def share(self, node: PlannedNode) -> NodeShare:
        """What the vendor's launcher is told of one node."""
        return NodeShare(
            node_index=node.index,
            num_nodes=len(self.nodes),
            devices=node.devices,
            master_address=self.master_address,
            master_port=self.master_port,
            allowed_cores=node.allowed_cores,
            host_workers=self.host_workers,
        )
