"""A machine laid out in a folder: what an adapter looks at under `Machine.root`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from flagperf.api import CommandOutput, Machine
from flagperf.kit import run_tool


class MachineFolder:
    """MachineFolder(tmp_path).pci("0000:07:00.0", "10ab", "0a01", "0302").node("/dev/acme0").module("acme", "7.1")"""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def file(self, path: str, text: str = "") -> MachineFolder:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return self

    def pci(
        self, address: str, vendor_id: str, device_id: str, class_id: str, local_cpus: str = "", driver: str = ""
    ) -> MachineFolder:
        """Ids and class in hexadecimal without 0x; `local_cpus` as the kernel lists them (`0-31`)."""
        folder = f"/sys/bus/pci/devices/{address}"
        self.file(f"{folder}/vendor", f"0x{vendor_id}\n").file(f"{folder}/device", f"0x{device_id}\n")
        self.file(f"{folder}/class", f"0x{class_id:0<6}\n")
        if local_cpus:
            self.file(f"{folder}/local_cpulist", f"{local_cpus}\n")
        if driver:
            self.file(f"/sys/bus/pci/drivers/{driver}/{address}")
        return self

    def node(self, *paths: str) -> MachineFolder:
        """Device nodes; plain files do: adapters go by name."""
        for path in paths:
            self.file(path)
        return self

    def module(self, name: str, version: str = "") -> MachineFolder:
        self.file(f"/sys/module/{name}/initstate", "live\n")
        return self.file(f"/sys/module/{name}/version", f"{version}\n") if version else self

    def machine(
        self, environ: Mapping[str, str] | None = None, run: Callable[..., CommandOutput] = run_tool
    ) -> Machine:
        """Without an environment of its own it has a PATH on which no tool is found."""
        return Machine(self.root, {"PATH": os.devnull} if environ is None else dict(environ), run)
