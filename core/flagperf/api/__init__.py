"""The contract: what core calls, and what it exchanges with vendors, sites and case authors. Imports no torch.

What adapters are built with (reading tools, finding cards, the torchrun launcher) is in flagperf.kit.
"""

from flagperf.api.case import (
    TORCH_LIBRARIES,
    CaseReference,
    CheckFiles,
    DataFile,
    EstimateMemory,
    ListContents,
    OperatorLibrary,
)
from flagperf.api.cluster import Allocation, Cluster, JobState, Node, NoOptions
from flagperf.api.device import (
    PRECISIONS,
    Activation,
    AllocatorMemory,
    Device,
    DeviceBackend,
    Precision,
    Presence,
    TimingEvent,
    precision,
)
from flagperf.api.launcher import ContainerNeeds, LaunchCommand, Launcher, NodeShare, RankFailure, Setting
from flagperf.api.machine import CommandOutput, Machine
from flagperf.api.memory_probe import FIGURES, Availability, MemoryProbe, ProcessReading, Reading
from flagperf.api.models import CardModel, Peak
from flagperf.api.operator_calls import (
    Argument,
    OperatorCall,
    RecordedRanks,
    RecordedTensor,
    Recording,
    TensorArgument,
    ValueRange,
    WordArgument,
)

__all__ = [
    "FIGURES",
    "PRECISIONS",
    "TORCH_LIBRARIES",
    "Activation",
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
