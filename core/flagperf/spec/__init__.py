"""What is asked for and what it means: the request, the case's manifest, layered values, the job."""

from flagperf.spec.facts import ENVIRONMENT_FACTS, Environment, Fact, NodeFacts, VendorFacts
from flagperf.spec.job import Job, NodePart
from flagperf.spec.manifest import (
    Limit,
    Manifest,
    Page,
    Profile,
    Quality,
    Reference,
    Target,
    Text,
    Values,
    read_manifest,
    read_toml,
)
from flagperf.spec.runspec import RunSpec
from flagperf.spec.values import Layer, Resolved, flatten, nest, page_name, parse_assignment, resolve

__all__ = [
    "ENVIRONMENT_FACTS", "Environment", "Fact", "Job", "Layer", "Limit", "Manifest", "NodeFacts", "NodePart", "Page",
    "Profile", "Quality", "Reference", "Resolved", "RunSpec", "Target", "Text", "Values", "VendorFacts", "flatten",
    "nest", "page_name", "parse_assignment", "read_manifest", "read_toml", "resolve",
]  # fmt: skip
