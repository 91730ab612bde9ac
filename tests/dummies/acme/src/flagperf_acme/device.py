"""The cards, and every way in which a driver can disappoint.

ACME_STATE   absent (the default)   nothing at all
             present                two cards, narrowed by ACME_VISIBLE_DEVICES
             partial                a card on the bus without its device node
             raise                  the adapter raises
             hang                   the driver never answers
             hang_in_tool           neither does the vendor's tool, which has our stdout
             chatty                 present, and the vendor's library prints a banner
             crash                  the vendor's library takes the process with it
             nonsense               an answer that the contract does not know
             no_cards               present, but without a card
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from flagperf.api import Activation, Device, DeviceBackend, Machine, Peak, Presence

GIB = 1 << 30
MODEL = "Acme A1"
IDS = ("acme-aaaa", "acme-bbbb")


class AcmeBackend(DeviceBackend):
    vendor = "acme"
    aliases = ("acmecorp",)
    title = {"en": "Acme", "zh": "艾克米"}
    torch_type = "cpu"
    collective_backend = "gloo"
    visibility_variables = ("ACME_VISIBLE_DEVICES",)
    precisions = ("fp32", "bf16")
    has_allocator = False

    def peaks(self) -> list[Peak]:
        return [
            Peak(MODEL, "fp32", 1.5e12, "Acme A1 datasheet, page 3", "high"),
            Peak("Acme A2", "bf16", 9e12, "a sibling's figure, never this card's", "low"),
        ]

    def tuning_folder(self) -> Path:
        return Path(__file__).parent / "tuning"

    def presence(self, machine: Machine) -> Presence:
        state = machine.environ.get("ACME_STATE", "absent")
        if state == "absent":
            return Presence("absent", reason="looked for /dev/acme* and PCI vendor 0xac3e")
        if state == "partial":
            return Presence("partial", ("PCI 0000:3b:00.0 has vendor 0xac3e",), "/dev/acme0 is not there")
        if state == "nonsense":
            return Presence("perhaps")  # type: ignore[arg-type]
        _misbehave(state)
        return Presence("present", ("/dev/acme0", "/dev/acme1"))

    def devices(self, machine: Machine) -> list[Device]:
        if machine.environ.get("ACME_STATE") == "no_cards":
            return []
        visible = machine.environ.get("ACME_VISIBLE_DEVICES", "0,1")
        return [Device(IDS[index], MODEL, "A1", index, 16 * GIB) for index in map(int, visible.split(","))]

    def versions(self, machine: Machine) -> dict[str, str]:
        return {"driver": "7.1"}

    def activate(self, local_rank: int, num_threads: int, devices: list[Device]) -> Activation:
        return Activation("cpu", self.devices(Machine())[local_rank].id, "uuid")

    def synchronize(self) -> None: ...

    def framework_state(self) -> dict[str, str]:
        return {"acme_fast": os.environ.get("ACME_FAST", "unset")}


def _misbehave(state: str) -> None:
    if state == "raise":
        raise OSError("acmectl: firmware 3 is too old")
    if state == "hang":
        time.sleep(600)
    if state == "hang_in_tool":
        subprocess.run(["sleep", "600"], check=True)
    if state == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if state == "chatty":
        os.write(1, b"ACME runtime 7.1, have a nice day\n")
