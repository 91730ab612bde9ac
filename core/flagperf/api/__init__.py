"""What a vendor, a site or a case author writes against. Nothing here imports torch."""

from flagperf.api.case import CaseReference, DataFile
from flagperf.api.cells import Cell, cell_number, is_nothing, read_cells, whole_lines
from flagperf.api.cluster import AgentProcess, Cluster, Node
from flagperf.api.cpus import near_cpus, read_cpu_list, write_cpu_list
from flagperf.api.device import (
    Activation,
    AllocatorMemory,
    Device,
    DeviceBackend,
    Presence,
    TimingEvent,
)
from flagperf.api.discovery import Card, make_devices
from flagperf.api.host import allowed_cores, memory_limit_bytes, memory_used_bytes
from flagperf.api.launcher import LaunchCommand, Launcher, NodeShare, RankFailure, Setting, TorchrunLauncher
from flagperf.api.machine import CommandOutput, Machine, run_tool
from flagperf.api.memory import FIGURES, Availability, MemoryProbe, ProcessReading, Reading
from flagperf.api.models import CardModel, Peak, find_model, read_models
from flagperf.api.pci import PciFunction, pci_address, pci_functions
from flagperf.api.precision import PRECISIONS, Precision, precision
from flagperf.api.presence import Evidence, judge
from flagperf.api.processes import descendants
from flagperf.api.python import module_command
from flagperf.api.tools import Query, Tool, ToolProbe, ask_all, ask_first, join, merge
from flagperf.api.torch_device import TorchDeviceBackend
from flagperf.api.visibility import visible_devices

__all__ = [
    "FIGURES", "PRECISIONS", "Activation", "AgentProcess", "AllocatorMemory", "Availability", "Card", "CardModel",
    "CaseReference", "Cell", "Cluster", "CommandOutput", "DataFile", "Device", "DeviceBackend", "Evidence",
    "LaunchCommand", "Launcher", "Machine", "MemoryProbe", "Node", "NodeShare", "PciFunction", "Peak", "Precision",
    "Presence", "ProcessReading", "Query", "RankFailure", "Reading", "Setting", "TimingEvent", "Tool", "ToolProbe",
    "TorchDeviceBackend", "TorchrunLauncher", "allowed_cores", "ask_all", "ask_first", "cell_number", "descendants",
    "find_model", "is_nothing", "join", "judge", "make_devices", "memory_limit_bytes", "memory_used_bytes", "merge",
    "module_command", "near_cpus", "pci_address", "pci_functions", "precision", "read_cells", "read_cpu_list",
    "read_models", "run_tool", "visible_devices", "whole_lines", "write_cpu_list",
]  # fmt: skip
