"""What is asked for and what it means: the request, the case's manifest, layered values, the job."""

from flagperf.spec.check import is_object_reference
from flagperf.spec.facts import ENVIRONMENT_FACTS, Environment, Fact, NodeFacts, VendorFacts
from flagperf.spec.fingerprint import fingerprint
from flagperf.spec.hello import check_hello, hello_line
from flagperf.spec.job import WORKER_MODULE, Job, NodePart
from flagperf.spec.manifest import (
    Manifest,
    Page,
    Profile,
    Quality,
    Reference,
    Target,
    Text,
    read_manifest,
    read_toml,
)
from flagperf.spec.messages import (
    AgentMessage,
    CheckAnswer,
    CheckRequest,
    DescribeRequest,
    EvaluationProgress,
    Failure,
    ProbeRequest,
    Progress,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
    WorkOrder,
)
from flagperf.spec.runspec import RunSpec
from flagperf.spec.stated import state_environment
from flagperf.spec.values import (
    TUNING_LAYER,
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

__all__ = [
    "ENVIRONMENT_FACTS", "TUNING_LAYER", "WORKER_MODULE", "AgentMessage", "CheckAnswer", "CheckRequest",
    "DescribeRequest", "Environment", "EvaluationProgress", "Fact", "Failure", "Job", "Layer", "Limit", "Manifest",
    "NodeFacts", "NodePart", "Page", "ProbeRequest", "Profile", "Progress", "Quality", "Reference", "Resolved",
    "RunSpec", "Target", "Text", "Values", "VendorFacts", "WorkOrder", "WorkersEndedMessage", "WorkersLaunchedMessage",
    "check_hello", "fingerprint", "flatten", "hello_line", "is_object_reference", "nest", "page_name",
    "parse_assignment", "read_manifest",
    "read_toml", "resolve", "state_environment",
]  # fmt: skip
