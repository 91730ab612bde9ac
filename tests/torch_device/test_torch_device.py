"""A torch device written in Python: what it forgives, and what it counts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import device_checks
import pytest
from nova_machine import HERE, MIB, NovaMachine, made_once

from flagperf.errors import BadInput
from flagperf.testing.process import AdapterProcess, adapter_process
from flagperf.testing.torch_device.options import Options, read_options

CHECKS = [name for name in vars(device_checks) if name.startswith("check_")]


@pytest.fixture(scope="module")
def problems(nova_site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    machine = NovaMachine(nova_site, tmp_path_factory.mktemp("checks"))

    def check(out: Path) -> None:
        command = [sys.executable, str(HERE / "device_checks.py"), str(out)]
        process = machine.start(command, FLAGPERF_TEST_DEVICE="float64=no")
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr

    return dict(json.loads(made_once(tmp_path_factory, "device-checks.json", check).read_text()))


@pytest.mark.run
@pytest.mark.parametrize("name", CHECKS)
def test_the_device(problems: dict[str, str], name: str) -> None:
    assert problems[name] == ""


@pytest.mark.run
def test_the_suites_see_memory_rise_and_fall_again(nova: NovaMachine) -> None:
    """On a caching allocator: freed memory is given back only if nothing refers to it any more."""
    with adapter_process("nova", nova.environ, nova.folder) as process:
        process.ask("activate", local_rank=1)
        process.ask("allocate", num_bytes=MIB, local_rank=1)
        before = _used(process)
        process.ask("allocate", num_bytes=64 * MIB, local_rank=1)
        process.ask("allocate", num_bytes=64 * MIB, local_rank=1)
        assert _used(process) - before == 128 * MIB
        process.ask("free")
        assert _used(process) <= before


def _used(process: AdapterProcess) -> int:
    (reading,) = [each for each in process.ask("sample")["readings"] if each["device_id"] == "NOVA-11"]
    return int(reading["used_bytes"])


def test_options_are_words_and_numbers() -> None:
    assert read_options("float64=no, error_at=500,rank=1") == Options(float64=False, error_at=500, rank=1)
    for text in ("error_at=soon", "eror_at=5", "float64"):
        with pytest.raises(BadInput, match="FLAGPERF_TEST_DEVICE="):
            read_options(text)
