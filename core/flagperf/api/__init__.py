"""The contract: what core calls, and what it exchanges with vendors, sites and case authors. Imports no torch.

What adapters are built with (reading tools, finding cards, the torchrun launcher) is in flagperf.kit.
"""

from flagperf.api.case import CaseReference, CheckFiles, DataFile, EstimateMemory, ListContents
from flagperf.api.cluster import Allocation, Cluster, JobState, Node, NoOptions
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
