"""What a vendor, a site or a case author writes against. Nothing here imports torch."""

from flagperf.api.case import CaseReference, DataFile
from flagperf.api.cluster import AgentProcess, Cluster, Node
from flagperf.api.device import (
    Activation,
    AllocatorMemory,
    Device,
    DeviceBackend,
    Peak,
    Presence,
    TimingEvent,
)
from flagperf.api.host import allowed_cores, memory_limit_bytes, memory_used_bytes
from flagperf.api.launcher import LaunchCommand, Launcher, NodeShare, RankFailure, Setting, TorchrunLauncher
from flagperf.api.machine import CommandOutput, Machine, run_tool
from flagperf.api.memory import Availability, MemoryProbe, Reading
from flagperf.api.precision import PRECISIONS, Precision, precision
from flagperf.api.python import module_command

__all__ = [
    "PRECISIONS", "Activation", "AgentProcess", "AllocatorMemory", "Availability", "CaseReference", "Cluster",
    "CommandOutput", "DataFile", "Device", "DeviceBackend", "LaunchCommand", "Launcher", "Machine", "MemoryProbe",
    "Node", "NodeShare", "Peak", "Precision", "Presence", "RankFailure", "Reading", "Setting", "TimingEvent",
    "TorchrunLauncher", "allowed_cores", "memory_limit_bytes", "memory_used_bytes", "module_command", "precision",
    "run_tool",
]  # fmt: skip
