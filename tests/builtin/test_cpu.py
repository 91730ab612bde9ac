from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.api import Device, Machine
from flagperf.builtin.cpu import CpuBackend, CpuLauncher

GIB = 1 << 30
CPUINFO = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7742 64-Core Processor\nflags\t\t: fpu\n"


def machine(root: Path, cpuinfo: str | None = CPUINFO) -> Machine:
    (root / "proc").mkdir()
    (root / "proc" / "meminfo").write_text(f"MemTotal: {32 * GIB // 1024} kB\n")
    if cpuinfo is not None:
        (root / "proc" / "cpuinfo").write_text(cpuinfo)
    return Machine(root=root, environ={})


def test_slots_are_devices_that_share_one_pool(tmp_path: Path) -> None:
    devices = CpuBackend().devices(machine(tmp_path))
    assert [device.id for device in devices] == [f"cpu:{slot}" for slot in range(64)]
    assert devices[5] == Device("cpu:5", "AMD EPYC 7742 64-Core Processor", "CPU", 5, 32 * GIB)
    assert CpuBackend.memory_scope == "host"


def test_a_processor_without_a_name_is_called_cpu(tmp_path: Path) -> None:
    assert CpuBackend().devices(machine(tmp_path, "processor\t: 0\nCPU part\t: 0xd0c\n"))[0].model == "CPU"


def test_the_processor_is_the_evidence_and_a_cpu_is_always_there(tmp_path: Path) -> None:
    presence = CpuBackend().presence(machine(tmp_path))
    assert (presence.state, presence.evidence) == ("present", ("processor: AMD EPYC 7742 64-Core Processor",))
    assert CpuBackend().presence(Machine(tmp_path / "none", {})).state == "present"


def test_the_cpu_is_what_every_machine_has() -> None:
    backend = CpuBackend()
    assert backend.is_fallback and not backend.has_allocator and not backend.has_timing_events
    assert backend.peaks() == []
    assert CpuLauncher.vendor == backend.vendor == "cpu"


IN_WORKER = """
from flagperf.api import Machine, precision
from flagperf.builtin.cpu import CpuBackend
backend = CpuBackend()
activation = backend.activate(3, 2, backend.devices(Machine()))
assert (activation.torch_device, activation.device_id, activation.mapping) == ("cpu", "cpu:3", "slot"), activation
import torch
torch.set_float32_matmul_precision("medium")
backend.set_precision(precision("fp32"))
backend.synchronize()
state = backend.framework_state()
assert state == {"torch": torch.__version__, "threads": "2", "float32_matmul_precision": "highest"}, state
"""


@pytest.mark.run
def test_a_worker_gets_its_slot_its_threads_and_true_fp32() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run([sys.executable, "-c", IN_WORKER], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
