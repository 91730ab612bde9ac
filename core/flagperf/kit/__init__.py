"""The parts that adapters are built with: reading tools and their output, finding cards, starting workers.

A vendor's package is parsing and tables on top of this; a site's may start agents with it. Nothing here is part of the
contract that core calls (flagperf.api), and nothing here imports torch with the module.
"""

from flagperf.api.launcher import near_cpus, read_cpu_list, write_cpu_list
from flagperf.api.machine import run_tool
from flagperf.api.models import find_model, read_models
from flagperf.kit.cards import Card, Cell, cell_number, is_nothing, make_devices, read_cells, unlisted_card, whole_lines
from flagperf.kit.host_limits import allowed_cores, memory_limit_bytes, memory_used_bytes
from flagperf.kit.presence import (
    Evidence,
    PciFunction,
    judge,
    link_bytes_per_second,
    pci_address,
    pci_functions,
    pci_link,
    usable_nodes,
    visible_devices,
    with_render_node,
)
from flagperf.kit.tools import Query, Tool, ToolProbe, ask_all, ask_any, ask_first, join, merge
from flagperf.kit.torch_device import TorchDeviceBackend
from flagperf.kit.torchrun import TorchrunLauncher
from flagperf.processes import descendants, module_command

__all__ = [
    "Card",
    "Cell",
    "Evidence",
    "PciFunction",
    "Query",
    "Tool",
    "ToolProbe",
    "TorchDeviceBackend",
    "TorchrunLauncher",
    "allowed_cores",
    "ask_all",
    "ask_any",
    "ask_first",
    "cell_number",
    "descendants",
    "find_model",
    "is_nothing",
    "join",
    "judge",
    "link_bytes_per_second",
    "make_devices",
    "memory_limit_bytes",
    "memory_used_bytes",
    "merge",
    "module_command",
    "near_cpus",
    "pci_address",
    "pci_functions",
    "pci_link",
    "read_cells",
    "read_cpu_list",
    "read_models",
    "run_tool",
    "unlisted_card",
    "usable_nodes",
    "visible_devices",
    "whole_lines",
    "with_render_node",
    "write_cpu_list",
]
