"""The cards' figures through `xpu-smi -m`, or through its table where a release does not print -m in a known way."""

from __future__ import annotations

from flagperf.api import Availability, Machine
from flagperf.kit import Query, Tool, ToolProbe, pci_functions
from flagperf_kunlun.smi import parse_machine, parse_table

XPU_SMI = Tool(names=("xpu-smi", "xpu_smi"), folders=("/usr/local/bin", "/usr/local/xpu/bin", "/opt/xre/bin"))
CONTROL_NODE = "/dev/xpuctrl"
PCI_VENDOR = "1d22"
FIGURES = ("used_bytes", "total_bytes", "utilisation_percent", "power_watts", "temperature_celsius")
MACHINE = Query(("-m",), parse_machine, FIGURES)
TABLE = Query((), parse_table, FIGURES)


def may_be_kunlun(machine: Machine) -> bool:
    """Whether an xpu-smi on this machine can be Kunlunxin's: Intel's tool and a package on PyPI have the same name."""
    return bool(machine.glob(CONTROL_NODE) or pci_functions(machine, PCI_VENDOR))


class KunlunSmiProbe(ToolProbe):
    vendor = "kunlun"
    name = "xpu-smi"
    tool = XPU_SMI
    queries = (MACHINE,)
    figures = FIGURES
    minimum_interval_seconds = 1.0

    def available(self, machine: Machine) -> Availability:
        path = self.tool.find(machine)
        if path and not may_be_kunlun(machine):
            reason = f"{path} is not Kunlunxin's: neither {CONTROL_NODE} nor PCI {PCI_VENDOR} is here"
            return Availability(False, reason)
        return self.tried(machine)


class KunlunTableProbe(KunlunSmiProbe):
    name = "xpu-smi-table"
    queries = (TABLE,)
