"""From a RunSpec to a Job: what the nodes have, which vendor, which values, which commands."""

from flagperf.plan.device_models import known_models
from flagperf.plan.estimate import MemoryEstimate
from flagperf.plan.for_model import UNKNOWN, ModelPlan, plan_for_model
from flagperf.plan.nodes import describe_machine
from flagperf.plan.parallel import layout_text, num_devices
from flagperf.plan.plan import Plan, make_plan
from flagperf.plan.userfile import UserFile, read_user_file, with_stated_environment
from flagperf.plan.vendor import VendorChoice, choose_vendor, describe_finding

__all__ = [
    "UNKNOWN",
    "MemoryEstimate",
    "ModelPlan",
    "Plan",
    "UserFile",
    "VendorChoice",
    "choose_vendor",
    "describe_finding",
    "describe_machine",
    "known_models",
    "layout_text",
    "make_plan",
    "num_devices",
    "plan_for_model",
    "read_user_file",
    "with_stated_environment",
]
