from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest
from nvidia_builders import (
    FIRST,
    GIB,
    MIB,
    NAME,
    SECOND,
    TOTAL,
    device,
    in_child,
    machine_folder,
    nvml_card,
    nvml_environ,
    nvml_text,
    transcript,
    uuid,
    write_nvidia_smi,
)

from flagperf.api import FIGURES, Machine, MemoryProbe, ProcessReading, Reading
from flagperf.errors import ToolFailed, UnknownLayout
from flagperf.kit import Tool
from flagperf.testing import Answer, MachineFolder, simulated_environ, write_tool
from flagperf_nvidia import flagperf_memory_probes, smi
from flagperf_nvidia.memory import NOT_OF_A_SLICE, NvidiaSmiProbe, NvmlProbe
from flagperf_nvidia.nvml import throttle_words

SAMPLE = "answer = probe.sample(backend.devices(machine), None)"


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whatever machine it is on; children have the library that plays NVML."""

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


def sample(root: Path, text: str, *defines: str, code: str = SAMPLE) -> list[Reading]:
    return msgspec.convert(in_child(code, nvml_environ(root, text, *defines)), list[Reading])


def test_nvml_comes_before_the_tool() -> None:
    probes: list[MemoryProbe] = flagperf_memory_probes()
    assert [probe.name for probe in probes] == ["nvml", "nvidia-smi"]
    assert [probe.minimum_interval_seconds for probe in probes] == [0.1, 1.0]


# --- NVML -----------------------------------------------------------------------------------------------------------


def test_every_card_tells_its_own_bytes_and_figures(tmp_path: Path) -> None:
    machine_folder(tmp_path, 16)
    readings = sample(tmp_path, nvml_text([nvml_card(index) for index in range(16)]))
    assert readings == [
        Reading(
            uuid(index),
            (index + 1) * GIB,
            TOTAL,
            40.0 + index,
            (100500 + index) / 1000,
            50.0 + index,
            properties={"memory_form": "v2"},
            energy_joules=((1 << 40) + index) / 1000,
            clock_mhz=1410.0 - index,
            throttle_reasons=(),
        )
        for index in range(16)
    ]


def test_a_figure_that_a_card_does_not_know_is_missing_with_nvmls_words(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (reading,) = sample(tmp_path, nvml_text([nvml_card(0, utilization=None, milliwatts=None)]))
    assert (reading.utilisation_percent, reading.power_watts) == (None, None)
    assert set(reading.missing) == {"utilisation_percent", "power_watts"}
    assert reading.missing["power_watts"].startswith("nvmlDeviceGetPowerUsage") and "NVML 3" in str(reading.missing)
    assert reading.used_bytes == 1 * GIB


def test_energy_clock_and_throttling_that_a_card_does_not_have_are_missing_with_nvmls_words(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (reading,) = sample(tmp_path, nvml_text([nvml_card(0, millijoules=None, sm_mhz=None, throttle=None)]))
    assert (reading.energy_joules, reading.clock_mhz, reading.throttle_reasons) == (None, None, None)
    assert {figure: reason.partition(":")[0] for figure, reason in reading.missing.items()} == {
        "energy_joules": "nvmlDeviceGetTotalEnergyConsumption",
        "clock_mhz": "nvmlDeviceGetClockInfo",
        "throttle_reasons": "nvmlDeviceGetCurrentClocksEventReasons",
    }
    assert all("NVML 3" in reason for reason in reading.missing.values())


@pytest.mark.parametrize("defines", [(), ("OLD_DRIVER",)])
def test_throttling_is_asked_by_the_name_that_the_driver_knows(tmp_path: Path, defines: tuple[str, ...]) -> None:
    machine_folder(tmp_path, 1)
    (reading,) = sample(tmp_path, nvml_text([nvml_card(0, throttle="0x24")]), *defines)
    assert reading.throttle_reasons == ("power cap", "software thermal")


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("power cap",)),
        (0x49, ("hardware slowdown", "hardware thermal")),
        (0x92, ("clock setting", "sync boost", "power brake")),
        (0x1000, ("unknown reason 0x1000",)),
    ],
)
def test_every_bit_of_throttling_has_its_words(bits: int, words: tuple[str, ...]) -> None:
    assert throttle_words(bits) == words


def test_the_words_go_by_the_bits_of_the_binding() -> None:
    names = [name for name in dir(pynvml) if name.startswith(("nvmlClocksEventReason", "nvmlClocksThrottleReason"))]
    bits = {name: getattr(pynvml, name) for name in names if not name.endswith(("All", "None"))}
    bits = {name: bit for name, bit in bits.items() if isinstance(bit, int)}
    assert "power cap" in throttle_words(bits["nvmlClocksEventReasonSwPowerCap"])
    assert "software thermal" in throttle_words(bits["nvmlClocksThrottleReasonSwThermalSlowdown"])
    assert [name for name, bit in bits.items() if "unknown" in " ".join(throttle_words(bit))] == []


@pytest.mark.parametrize("defines", [(), ("OLD_DRIVER",)])
def test_an_old_driver_gives_memory_by_the_older_call_and_says_so(tmp_path: Path, defines: tuple[str, ...]) -> None:
    """A call that the library lacks, and one that it has but does not answer."""
    machine_folder(tmp_path, 1)
    (reading,) = sample(tmp_path, nvml_text([nvml_card(0)], errors="nvmlDeviceGetMemoryInfo_v2:13"), *defines)
    assert (reading.used_bytes, reading.total_bytes) == (1 * GIB + 900 * MIB, TOTAL)
    assert reading.properties == {"memory_form": "v1, used includes reserved"}


def test_a_newer_call_that_counts_reserved_memory_as_used_is_told_apart(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (reading,) = sample(tmp_path, nvml_text([nvml_card(0, used_includes_reserved=1)]))
    assert reading.properties == {"memory_form": "v2, used includes reserved"}


def test_a_card_that_falls_off_the_bus_is_missing_and_the_others_are_read_on(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    lost = nvml_text([nvml_card(0, used=3 * GIB), nvml_card(1, errors="*:15")])
    code = (
        "from pathlib import Path\nimport os\n"
        "devices = backend.devices(machine)\nfirst = probe.sample(devices, None)\n"
        f"Path(os.environ['FAKE_NVML']).write_text({lost!r})\n"
        "answer = [*first, *probe.sample(devices, None)]"
    )
    before, _, after, gone = sample(tmp_path, nvml_text([nvml_card(0), nvml_card(1)]), code=code)
    assert (before.used_bytes, after.used_bytes) == (1 * GIB, 3 * GIB)
    assert set(gone.missing) == set(FIGURES)
    assert all("NVML 15" in reason for reason in gone.missing.values())


def test_a_card_that_cannot_be_found_again_is_missing(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    cards = [nvml_card(0), nvml_card(1, errors="nvmlDeviceGetHandleByUUID:4")]
    whole, refused = sample(tmp_path, nvml_text(cards))
    assert not whole.missing
    assert set(refused.missing) == set(FIGURES) and "NVML 4" in refused.missing["used_bytes"]


def test_a_slice_has_its_own_memory_and_nothing_of_the_whole_card(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    slices = [
        {
            "card": 0,
            "uuid": f"MIG-aaaaaaaa-0000-5000-8000-00000000000{index}",
            "name": f"{NAME} MIG 1g.5gb",
            "total": 4864 * MIB,
            "used": (index + 1) * MIB,
            "celsius": 50,
        }
        for index in range(2)
    ]
    first, second = sample(tmp_path, nvml_text([nvml_card(0, mig=1)], slices))
    assert (first.used_bytes, second.used_bytes, second.total_bytes) == (1 * MIB, 2 * MIB, 4864 * MIB)
    assert second.missing == dict.fromkeys(FIGURES[2:], NOT_OF_A_SLICE)


@pytest.mark.parametrize("defines", [(), ("OLD_DRIVER",)])
def test_processes_are_listed_with_their_card(tmp_path: Path, defines: tuple[str, ...]) -> None:
    machine_folder(tmp_path)
    processes = [{"card": 1, "pid": 41, "bytes": 7 * MIB}, {"card": 1, "pid": 42, "bytes": 0xFFFFFFFFFFFFFFFF}]
    code = "answer = probe.processes(backend.devices(machine))\nprobe.close()"
    environ = nvml_environ(tmp_path, nvml_text([nvml_card(0), nvml_card(1)], (), processes), *defines)
    found = msgspec.convert(in_child(code, environ), list[ProcessReading])
    assert found == [ProcessReading(uuid(1), 41, 7 * MIB), ProcessReading(uuid(1), 42, None)]


@pytest.mark.parametrize(("num_broken", "outcome"), [(1, [41]), (2, "NvmlFailed")])
def test_a_card_whose_processes_cannot_be_listed_hides_none_of_the_others(
    num_broken: int, outcome: object, tmp_path: Path
) -> None:
    machine_folder(tmp_path)
    lost = "nvmlDeviceGetComputeRunningProcesses_v3:15"
    cards = [nvml_card(index, errors=lost if index < num_broken else None) for index in range(2)]
    code = (
        "from flagperf.errors import ToolFailed\n"
        "try:\n    answer = [each.pid for each in probe.processes(backend.devices(machine))]\n"
        "except ToolFailed as error:\n    answer = type(error).__name__\n"
    )
    environ = nvml_environ(tmp_path, nvml_text(cards, (), [{"card": 1, "pid": 41, "bytes": 7 * MIB}]))
    assert in_child(code, environ) == outcome


def test_sessions_are_closed_as_often_as_they_are_opened(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    code = (
        "import pynvml\n"
        "backend.versions(machine), probe.available(machine)\n"
        "devices = backend.devices(machine)\n"
        "probe.sample(devices, None), probe.sample(devices, None), probe.processes(devices)\n"
        "during = pynvml._nvmlLib_refcount\nprobe.close(), probe.close()\nanswer = [during, pynvml._nvmlLib_refcount]"
    )
    assert in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0)]))) == [1, 0]


def test_the_library_is_not_asked_where_no_card_is_present(tmp_path: Path) -> None:
    availability = NvmlProbe().available(MachineFolder(tmp_path).machine())
    assert not availability.available and "no NVIDIA card is here" in availability.reason


def test_a_machine_without_the_library_says_so(tmp_path: Path) -> None:
    availability = NvmlProbe().available(machine_folder(tmp_path).machine())
    assert not availability.available and "NVML 12" in availability.reason


def test_a_device_of_an_address_alone_is_found_by_it(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    code = (
        "from flagperf.api import Device\n"
        "answer = probe.sample([Device('x', 'm', 'm', 1, pci_address='0000:0f:00.0')], None)"
    )
    (reading,) = sample(tmp_path, nvml_text([nvml_card(0), nvml_card(1)]), code=code)
    assert (reading.device_id, reading.used_bytes) == ("x", 2 * GIB)


# --- nvidia-smi -----------------------------------------------------------------------------------------------------


def smi_machine(root: Path) -> Machine:
    return machine_folder(root).machine({"PATH": str(root / "bin")})


def smi_probe(root: Path, *answers: Answer) -> NvidiaSmiProbe:
    write_tool(root / "bin", "nvidia-smi", answers)
    probe = NvidiaSmiProbe()
    assert probe.available(smi_machine(root)).available
    return probe


def test_the_tool_tells_the_same_of_the_same_cards(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin")
    probe = NvidiaSmiProbe()
    assert probe.available(smi_machine(tmp_path)).available
    swapped = [device(1), device(0)]
    assert [(reading.device_id, reading.used_bytes) for reading in probe.sample(swapped, None)] == [
        (uuid(1), 2 * GIB),
        (uuid(0), 1 * GIB),
    ]
    assert probe.processes(swapped) == [ProcessReading(uuid(0), 4242, 812 * MIB)]


def test_the_tool_is_not_asked_where_no_card_is_present(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin")
    machine = Machine(tmp_path, simulated_environ(tmp_path, tmp_path / "bin"))
    availability = NvidiaSmiProbe().available(machine)
    assert not availability.available and "no NVIDIA card is here" in availability.reason


def test_a_machine_without_the_tool_says_where_it_was_looked_for(tmp_path: Path) -> None:
    availability = NvidiaSmiProbe().available(smi_machine(tmp_path))
    assert not availability.available and "/usr/bin" in availability.reason


def test_a_card_that_the_tool_does_not_list_is_missing_with_that_reason(tmp_path: Path) -> None:
    probe = smi_probe(tmp_path, Answer(smi.QUERY_GPU, transcript("query_gpu")))
    (reading,) = probe.sample([device(0)], None)
    why = f"the tool did not list this card: what it lists is called {FIRST}, {SECOND}"
    assert reading.missing == dict.fromkeys(probe.figures, why)


def test_a_slice_never_gets_the_figures_of_its_card(tmp_path: Path) -> None:
    probe = smi_probe(tmp_path, Answer(smi.QUERY_GPU, transcript("query_gpu_mig")))
    part = device(0, id="MIG-x", uuid="MIG-x", pci_address="0000:3b:00.0", slice="MIG 1g.5gb")
    (reading,) = probe.sample([part], None)
    assert set(reading.missing) == set(FIGURES)


def test_a_lost_card_is_missing_with_the_tools_words(tmp_path: Path) -> None:
    probe = smi_probe(tmp_path, Answer(smi.QUERY_GPU, transcript("query_gpu_lost")))
    (reading,) = probe.sample([device(1, pci_address="0000:af:00.0")], None)
    assert "Unknown Error" in reading.missing["used_bytes"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(("*",), transcript("error_no_driver"), returncode=9), "ended with 9: NVIDIA-SMI has failed"),
        (Answer(("*",), transcript("error_mismatch"), returncode=18), "version mismatch"),
        (Answer(("*",), "", "cannot open display", returncode=255), "cannot open display"),
        (Answer(("*",), transcript("error_field")), "memory.usd"),
        (Answer(("*",), transcript("error_no_devices")), "No devices were found"),
        (Answer(("*",), ""), "(nothing)"),
        (Answer(("*",), "\x00\x7f\ufffd,,,\n" * 3), "neither a header"),
    ],
)
def test_a_tool_that_fails_is_our_error_with_its_words(tmp_path: Path, answer: Answer, words: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        smi_probe(tmp_path, answer).sample([device(0)], None)
    assert words in str(raised.value)
    assert isinstance(raised.value, UnknownLayout) == (answer.returncode == 0)


class HastyProbe(NvidiaSmiProbe):
    tool = Tool(("nvidia-smi",), timeout_seconds=0.5)


def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin", "nvidia-smi", [Answer(("*",), transcript("query_gpu"), seconds=3600)])
    probe = HastyProbe()
    probe.available(smi_machine(tmp_path))
    with pytest.raises(ToolFailed, match="did not end within"):
        probe.sample([device(0)], None)


def test_the_tool_gets_an_argument_list_and_a_limit_in_time(tmp_path: Path) -> None:
    calls: list[Any] = []

    def run(argv: Any, timeout_seconds: float) -> Any:
        calls.append((argv, timeout_seconds))
        raise ToolFailed("enough")

    write_nvidia_smi(tmp_path / "bin")
    probe = NvidiaSmiProbe()
    probe.available(machine_folder(tmp_path).machine({"PATH": str(tmp_path / "bin")}, run))
    with pytest.raises(ToolFailed, match="enough"):
        probe.sample([device(0)], None)
    assert calls == [([str(tmp_path / "bin" / "nvidia-smi"), *smi.QUERY_GPU], 10.0)]
