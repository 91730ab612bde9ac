"""What adapters are built with: reading tools and their output, finding cards, starting workers.

A vendor's package is parsing and tables on top of this; a site's may start agents with it. Nothing here is part of the
contract that core calls (flagperf.api), and nothing here imports torch with the module. All names are lazy: a process
loads only the modules of the names that it uses.
"""

from typing import TYPE_CHECKING

from flagperf.lazy_names import lazy_modules

_MODULES = {
    "cells": ("Cell", "cell_number", "is_nothing", "read_cells", "whole_lines"),
    "cpus": ("near_cpus", "read_cpu_list", "write_cpu_list"),
    "discovery": ("Card", "make_devices", "unlisted_card"),
    "host_limits": ("allowed_cores", "memory_limit_bytes", "memory_used_bytes"),
    "models_toml": ("find_model", "read_models"),
    "pci": ("PciFunction", "pci_address", "pci_functions", "usable_nodes", "with_render_node"),
    "host_link": ("link_bytes_per_second", "pci_link"),
    "presence": ("Evidence", "judge"),
    "process_tree": ("descendants",),
    "python_command": ("module_command",),
    "tool_process": ("run_tool",),
    "tools": ("Query", "Tool", "ToolProbe", "ask_all", "ask_any", "ask_first", "join", "merge"),
    "torch_device": ("TorchDeviceBackend",),
    "torchrun": ("TorchrunLauncher",),
    "visibility": ("visible_devices",),
}
"""Module -> the names that it gives."""

if TYPE_CHECKING:
    from flagperf.kit.cells import Cell, cell_number, is_nothing, read_cells, whole_lines
    from flagperf.kit.cpus import near_cpus, read_cpu_list, write_cpu_list
    from flagperf.kit.discovery import Card, make_devices, unlisted_card
    from flagperf.kit.host_limits import allowed_cores, memory_limit_bytes, memory_used_bytes
    from flagperf.kit.host_link import link_bytes_per_second, pci_link
    from flagperf.kit.models_toml import find_model, read_models
    from flagperf.kit.pci import PciFunction, pci_address, pci_functions, usable_nodes, with_render_node
    from flagperf.kit.presence import Evidence, judge
    from flagperf.kit.process_tree import descendants
    from flagperf.kit.python_command import module_command
    from flagperf.kit.tool_process import run_tool
    from flagperf.kit.tools import Query, Tool, ToolProbe, ask_all, ask_any, ask_first, join, merge
    from flagperf.kit.torch_device import TorchDeviceBackend
    from flagperf.kit.torchrun import TorchrunLauncher
    from flagperf.kit.visibility import visible_devices
else:
    __getattr__ = lazy_modules(__name__, _MODULES)

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
