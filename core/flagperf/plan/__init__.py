"""From a RunSpec to a Job: what the nodes have, which vendor, which values, which commands."""

from flagperf.plan.cards import known_cards
from flagperf.plan.elsewhere import UNKNOWN, CardPlan, plan_elsewhere
from flagperf.plan.estimate import MemoryEstimate
from flagperf.plan.nodes import describe_machine
from flagperf.plan.parallel import layout_text, num_devices
from flagperf.plan.plan import Plan, make_plan
from flagperf.plan.site import with_stated
from flagperf.plan.userfile import UserFile, read_user_file
from flagperf.plan.vendor import VendorChoice, choose_vendor, describe_finding

__all__ = [
    "UNKNOWN", "CardPlan", "MemoryEstimate", "Plan", "UserFile", "VendorChoice", "choose_vendor", "describe_finding",
    "describe_machine", "known_cards", "layout_text", "make_plan", "num_devices", "plan_elsewhere", "read_user_file",
    "with_stated",
]  # fmt: skip
