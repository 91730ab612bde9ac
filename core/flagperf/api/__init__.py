"""The contract: what core calls, and what it exchanges with vendors, sites and case authors. Imports no torch.

What adapters are built with (reading tools, finding cards, the torchrun launcher) is in flagperf.kit.
"""

from typing import TYPE_CHECKING

from flagperf.api.case import CaseReference, CheckFiles, DataFile, EstimateMemory, ListContents
from flagperf.api.cluster import AgentProcess, Allocation, Cluster, JobState, Node, NoOptions
from flagperf.api.device import (
    Activation,
    AllocatorMemory,
    Device,
    DeviceBackend,
    Presence,
    TimingEvent,
)
from flagperf.api.launcher import ContainerNeeds, LaunchCommand, Launcher, NodeShare, RankFailure, Setting
from flagperf.api.machine import CommandOutput, Machine
from flagperf.api.memory import FIGURES, Availability, MemoryProbe, ProcessReading, Reading
from flagperf.api.models import CardModel, Peak
from flagperf.api.operators import TORCH_LIBRARIES, OperatorLibrary
from flagperf.api.precision import PRECISIONS, Precision, precision
from flagperf.api.recording import (
    Argument,
    OperatorCall,
    RecordedRanks,
    RecordedTensor,
    Recording,
    TensorArgument,
    ValueRange,
    WordArgument,
)
from flagperf.lazy_names import lazy_names

if TYPE_CHECKING:
    from flagperf.kit import *  # noqa: F403
else:
    _MOVED_TO_KIT = """
    Card Cell Evidence PciFunction Query Tool ToolProbe TorchDeviceBackend TorchrunLauncher allowed_cores ask_all
    ask_first cell_number descendants find_model is_nothing join judge make_devices memory_limit_bytes
    memory_used_bytes merge module_command near_cpus pci_address pci_functions read_cells read_cpu_list read_models
    run_tool visible_devices whole_lines write_cpu_list
    """
    # In HOOK_API 1 these were names of this package; they moved to flagperf.kit in HOOK_API 2. Adapters that were
    # shipped before import them from here.
    __getattr__ = lazy_names(__name__, dict.fromkeys(_MOVED_TO_KIT.split(), "flagperf.kit"))

__all__ = [
    "FIGURES",
    "PRECISIONS",
    "TORCH_LIBRARIES",
    "Activation",
    "AgentProcess",
    "Allocation",
    "AllocatorMemory",
    "Argument",
    "Availability",
    "CardModel",
    "CaseReference",
    "CheckFiles",
    "Cluster",
    "CommandOutput",
    "ContainerNeeds",
    "DataFile",
    "Device",
    "DeviceBackend",
    "EstimateMemory",
    "JobState",
    "LaunchCommand",
    "Launcher",
    "ListContents",
    "Machine",
    "MemoryProbe",
    "NoOptions",
    "Node",
    "NodeShare",
    "OperatorCall",
    "OperatorLibrary",
    "Peak",
    "Precision",
    "Presence",
    "ProcessReading",
    "RankFailure",
    "Reading",
    "RecordedRanks",
    "RecordedTensor",
    "Recording",
    "Setting",
    "TensorArgument",
    "TimingEvent",
    "ValueRange",
    "WordArgument",
    "precision",
]
