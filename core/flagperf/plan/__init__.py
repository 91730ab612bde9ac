"""From a RunSpec to a Job: what the nodes have, which vendor, which values, which commands."""

from flagperf.plan.arms import other_setting, refuse_equal, turns
from flagperf.plan.device_models import known_models
from flagperf.plan.estimate import MemoryEstimate
from flagperf.plan.for_model import UNKNOWN, ModelPlan, plan_for_model
from flagperf.plan.node_check import CheckedNode, NodesReport, check_nodes_of
from flagperf.plan.nodes import describe_machine, with_meeting_place
from flagperf.plan.parallel import layout_text, num_devices
from flagperf.plan.plan import Plan, check_values, make_plan, renamed
from flagperf.plan.reach import check_reach, count_nodes, reach_nodes
from flagperf.plan.userfile import UserFile, read_user_file, with_stated_environment
from flagperf.plan.vendor import VendorChoice, choose_vendor, describe_finding

__all__ = [
    "UNKNOWN",
    "CheckedNode",
    "MemoryEstimate",
    "ModelPlan",
    "NodesReport",
    "Plan",
    "UserFile",
    "VendorChoice",
    "check_nodes_of",
    "check_reach",
    "check_values",
    "choose_vendor",
    "count_nodes",
    "describe_finding",
    "describe_machine",
    "known_models",
    "layout_text",
    "make_plan",
    "num_devices",
    "other_setting",
    "plan_for_model",
    "reach_nodes",
    "read_user_file",
    "refuse_equal",
    "renamed",
    "turns",
    "with_meeting_place",
    "with_stated_environment",
]
