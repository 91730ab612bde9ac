"""The request (RunSpec), the case's manifest, layered configuration values, and the job planned from them."""

from flagperf.kinds.kind import Text
from flagperf.spec.agent_messages import (
    AgentMessage,
    CheckAnswer,
    CheckRequest,
    DescribeRequest,
    EvaluationProgress,
    Failure,
    FetchRequest,
    ProbeRequest,
    Progress,
    RendezvousAnswer,
    RendezvousRequest,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
    WorkOrder,
    work_orders,
)
from flagperf.spec.check import is_object_reference
from flagperf.spec.facts import (
    ENVIRONMENT_FACTS,
    Environment,
    Fact,
    MissingRequirement,
    NodeFacts,
    VendorFacts,
    absent_fact,
)
from flagperf.spec.fingerprint import fingerprint
from flagperf.spec.hello import VersionMismatch, check_hello, hello_line
from flagperf.spec.job import WORKER_MODULE, Job, PlannedNode
from flagperf.spec.manifest import (
    Manifest,
    Page,
    Profile,
    PublishedResult,
    Quality,
    Target,
    read_manifest,
    with_counts,
)
from flagperf.spec.runspec import RunSpec, check_counts
from flagperf.spec.stated_environment import state_environment
from flagperf.spec.toml_reading import read_toml
from flagperf.spec.values import (
    Layer,
    Limit,
    Resolved,
    Values,
    flatten,
    nest,
    page_name,
    parse_assignment,
    resolve,
)
from flagperf.spec.vocabulary import Vocabulary

__all__ = [
    "ENVIRONMENT_FACTS",
    "WORKER_MODULE",
    "AgentMessage",
    "CheckAnswer",
    "CheckRequest",
    "DescribeRequest",
    "Environment",
    "EvaluationProgress",
    "Fact",
    "Failure",
    "FetchRequest",
    "Job",
    "Layer",
    "Limit",
    "Manifest",
    "MissingRequirement",
    "NodeFacts",
    "Page",
    "PlannedNode",
    "ProbeRequest",
    "Profile",
    "Progress",
    "PublishedResult",
    "Quality",
    "RendezvousAnswer",
    "RendezvousRequest",
    "Resolved",
    "RunSpec",
    "Target",
    "Text",
    "Values",
    "VendorFacts",
    "VersionMismatch",
    "Vocabulary",
    "WorkOrder",
    "WorkersEndedMessage",
    "WorkersLaunchedMessage",
    "absent_fact",
    "check_counts",
    "check_hello",
    "fingerprint",
    "flatten",
    "hello_line",
    "is_object_reference",
    "nest",
    "page_name",
    "parse_assignment",
    "read_manifest",
    "read_toml",
    "resolve",
    "state_environment",
    "with_counts",
    "work_orders",
]
