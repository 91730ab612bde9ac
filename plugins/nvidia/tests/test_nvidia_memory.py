"""The probes: whose figures these are, and what becomes of a library or tool that misbehaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest
from nvidia_builders import (
    GIB,
    TOTAL,
    device,
    folder_with_cards,
    in_child,
    in_child_each,
    nvml_card,
    nvml_environ,
    nvml_text,
    uuid,
    write_nvidia_smi,
)
from nvidia_outputs import A100, FIRST, MIB, SECOND, transcript

from flagperf.api import FIGURES, Device, Machine, ProcessReading, Reading
from flagperf.errors import ToolFailed, UnknownLayout
from flagperf.testing import Answer, MachineFolder, write_tool
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


def test_nvml_comes_before_the_tool() -> None:
    assert [each.name for each in flagperf_memory_probes()] == ["nvml", "nvidia-smi"]


# --- NVML ------------------------------------------------------------------------------------------------------------


def whole(index: int, **changed: Any) -> Reading:
    """All that card `index` of the machines below says."""
    reading = Reading(
        uuid(index), (index + 1) * GIB, TOTAL, 40.0 + index, (100500 + index) / 1000, 50.0 + index,
        properties={"memory_form": "v2"}, energy_joules=((1 << 40) + index) / 1000, clock_mhz=1410.0 - index,
        throttle_reasons=(),
    )  # fmt: skip
    return msgspec.structs.replace(reading, **changed)


def part(number: int) -> dict[str, object]:
    own = f"MIG-aaaaaaaa-0000-5000-8000-00000000000{number}"
    return {"card": 0, "uuid": own, "name": f"{A100} MIG 1g.5gb", "total": 4864 * MIB, "used": (number + 1) * MIB}


def part_reading(number: int) -> Reading:
    return Reading(
        str(part(number)["uuid"]), (number + 1) * MIB, 4864 * MIB, properties={"memory_form": "v2"},
        missing=dict.fromkeys(FIGURES[2:], NOT_OF_A_SLICE),
    )  # fmt: skip


def missing(*figures: str, **others: str) -> dict[str, str]:
    """As NVML says that a card does not have them."""
    calls = {
        "utilisation_percent": "nvmlDeviceGetUtilizationRates", "power_watts": "nvmlDeviceGetPowerUsage",
        "energy_joules": "nvmlDeviceGetTotalEnergyConsumption", "clock_mhz": "nvmlDeviceGetClockInfo",
        "throttle_reasons": "nvmlDeviceGetCurrentClocksEventReasons",
    }  # fmt: skip
    return {figure: f"{calls[figure]}: Not Supported (NVML 3)" for figure in figures}


FORM_V1 = {"used_bytes": GIB + 900 * MIB, "properties": {"memory_form": "v1, used includes reserved"}}
RESERVED_IS_USED = {"used_bytes": GIB + 900 * MIB, "properties": {"memory_form": "v2, used includes reserved"}}
NO_MEMORY = "nvmlDeviceGetMemoryInfo:3,nvmlDeviceGetMemoryInfo_v2:3"
SAMPLES: dict[str, tuple[str, Sequence[Reading]]] = {
    "all that is known": (nvml_text([nvml_card(index) for index in range(16)]), [whole(index) for index in range(16)]),
    "no utilisation and power": (nvml_text([nvml_card(0, utilization=None, milliwatts=None)]), [
        whole(0, utilisation_percent=None, power_watts=None, missing=missing("utilisation_percent", "power_watts")),
    ]),
    "no energy, clock and throttling": (nvml_text([nvml_card(0, millijoules=None, sm_mhz=None, throttle=None)]), [
        whole(0, energy_joules=None, clock_mhz=None, throttle_reasons=None,
              missing=missing("energy_joules", "clock_mhz", "throttle_reasons")),
    ]),
    "throttling": (nvml_text([nvml_card(0, throttle="0x24")]), [
        whole(0, throttle_reasons=("power cap", "software thermal")),
    ]),
    "a newer call for memory that does not answer": (
        nvml_text([nvml_card(0)], errors="nvmlDeviceGetMemoryInfo_v2:13"), [whole(0, **FORM_V1)],
    ),
    "a newer call that counts reserved memory as used": (nvml_text([nvml_card(0, used_includes_reserved=1)]), [
        whole(0, **RESERVED_IS_USED),
    ]),
    "slices": (nvml_text([nvml_card(0, mig=1)], [part(0), part(1)]), [part_reading(0), part_reading(1)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    environs = {}
    for case, (text, _) in SAMPLES.items():
        root = tmp_path_factory.mktemp("machine")
        folder_with_cards(root, text.count("\ncard\t"))
        environs[case] = nvml_environ(root, text)
    return in_child_each(SAMPLE, environs)


@pytest.mark.parametrize("case", SAMPLES)
def test_every_card_tells_its_own_bytes_and_figures(case: str, samples: Mapping[str, Any]) -> None:
    assert msgspec.convert(samples[case], list[Reading]) == list(SAMPLES[case][1])


def test_an_old_driver_is_asked_by_the_names_that_it_knows(tmp_path: Path) -> None:
    folder_with_cards(tmp_path, 1)
    text = nvml_text([nvml_card(0, throttle="0x24")], (), [{"card": 0, "pid": 41, "bytes": 7 * MIB}])
    code = "devices = backend.devices(machine)\nanswer = [probe.sample(devices, None), probe.processes(devices)]"
    readings, processes = in_child(code, nvml_environ(tmp_path, text, "OLD_DRIVER"))
    expected = whole(0, **FORM_V1, throttle_reasons=("power cap", "software thermal"))
    assert msgspec.convert(readings, list[Reading]) == [expected]
    assert msgspec.convert(processes, list[ProcessReading]) == [ProcessReading(uuid(0), 41, 7 * MIB)]


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


def test_a_card_that_falls_off_the_bus_is_missing_and_the_others_are_read_on(tmp_path: Path) -> None:
    folder_with_cards(tmp_path)
    lost = nvml_text([nvml_card(0, used=3 * GIB), nvml_card(1, errors="*:15")])
    code = (
        "from pathlib import Path\nimport os\n"
        "devices = backend.devices(machine)\nfirst = probe.sample(devices, None)\n"
        f"Path(os.environ['FAKE_NVML']).write_text({lost!r})\n"
        "answer = [*first, *probe.sample(devices, None)]"
    )
    environ = nvml_environ(tmp_path, nvml_text([nvml_card(0), nvml_card(1)]))
    before, _, after, gone = msgspec.convert(in_child(code, environ), list[Reading])
    assert (before.used_bytes, after.used_bytes) == (1 * GIB, 3 * GIB)
    assert set(gone.missing) == set(FIGURES)
    assert all("NVML 15" in reason for reason in gone.missing.values())


def test_a_card_that_cannot_be_found_again_is_missing_and_memory_of_the_host_has_its_reason(tmp_path: Path) -> None:
    folder_with_cards(tmp_path)
    cards = [nvml_card(0, errors=NO_MEMORY), nvml_card(1, errors="nvmlDeviceGetHandleByUUID:4")]
    first, refused = msgspec.convert(in_child(SAMPLE, nvml_environ(tmp_path, nvml_text(cards))), list[Reading])
    assert (first.used_bytes, first.total_bytes, first.power_watts) == (None, None, 100.5)
    assert set(first.missing) == {"used_bytes", "total_bytes"} and "NVML 3" in first.missing["total_bytes"]
    assert set(refused.missing) == set(FIGURES) and "NVML 4" in refused.missing["used_bytes"]


NO_LIST = "nvmlDeviceGetComputeRunningProcesses_v3:15"


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ((None, None), [["a", 41, 7 * MIB], ["a", 42, None]]),
        ((NO_LIST, None), [["a", 41, 7 * MIB], ["a", 42, None]]),
        ((NO_LIST, NO_LIST), "NvmlFailed"),
    ],
)
def test_a_card_whose_processes_cannot_be_listed_hides_none_of_the_others(
    errors: Sequence[str | None], outcome: object, tmp_path: Path
) -> None:
    folder_with_cards(tmp_path)
    cards = [nvml_card(index, errors=each) for index, each in enumerate(errors)]
    processes = [{"card": 1, "pid": 41, "bytes": 7 * MIB}, {"card": 1, "pid": 42, "bytes": 0xFFFFFFFFFFFFFFFF}]
    code = (
        "found = probe.processes(backend.devices(machine))\n"
        f"answer = [['a' if each.device_id == {uuid(1)!r} else 'b', each.pid, each.used_bytes] for each in found]"
    )
    answer = in_child(code, nvml_environ(tmp_path, nvml_text(cards, (), processes)))
    assert (answer.partition(":")[0] if isinstance(answer, str) else answer) == outcome


def test_sessions_are_closed_as_often_as_they_are_opened(tmp_path: Path) -> None:
    folder_with_cards(tmp_path)
    code = (
        "import pynvml\n"
        "backend.versions(machine), probe.available(machine)\n"
        "devices = backend.devices(machine)\n"
        "probe.sample(devices, None), probe.sample(devices, None), probe.processes(devices)\n"
        "during = pynvml._nvmlLib_refcount\nprobe.close(), probe.close()\nanswer = [during, pynvml._nvmlLib_refcount]"
    )
    assert in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0)]))) == [1, 0]


def test_a_device_of_an_address_alone_is_found_by_it(tmp_path: Path) -> None:
    folder_with_cards(tmp_path)
    code = "answer = probe.sample([Device('x', 'm', 'm', 1, pci_address='0000:0f:00.0')], None)"
    (reading,) = in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0), nvml_card(1)])))
    assert (reading["device_id"], reading["used_bytes"]) == ("x", 2 * GIB)


# --- nvidia-smi ------------------------------------------------------------------------------------------------------


def machine_with_tool(root: Path, *answers: Answer) -> Machine:
    if answers:
        write_tool(root / "bin", "nvidia-smi", answers)
    return folder_with_cards(root).machine({"PATH": str(root / "bin")})


def smi_probe(root: Path, *answers: Answer) -> NvidiaSmiProbe:
    probe = NvidiaSmiProbe()
    assert probe.available(machine_with_tool(root, *answers)).available
    return probe


def test_where_there_is_no_card_library_or_tool_the_reason_says_so(tmp_path: Path) -> None:
    no_card = MachineFolder(tmp_path / "a").machine({"PATH": str(tmp_path / "bin")})
    write_nvidia_smi(tmp_path / "bin")
    for probe, machine, words in (
        (NvmlProbe(), no_card, "no NVIDIA card is here"),
        (NvidiaSmiProbe(), no_card, "no NVIDIA card is here"),
        (NvmlProbe(), machine_with_tool(tmp_path / "b"), "NVML 12"),
        (NvidiaSmiProbe(), machine_with_tool(tmp_path / "b"), "/usr/bin"),
    ):
        availability = probe.available(machine)
        assert not availability.available and words in availability.reason


def test_the_tool_tells_the_same_of_the_same_cards(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin")
    probe = smi_probe(tmp_path)
    readings = probe.sample([device(1), device(0)], None)
    assert [(each.device_id, each.used_bytes) for each in readings] == [(uuid(1), 2 * GIB), (uuid(0), 1 * GIB)]
    assert probe.processes([device(1), device(0)]) == [ProcessReading(uuid(0), 4242, 812 * MIB)]


NOT_LISTED = f"the tool did not list this card: what it lists is called {FIRST}, {SECOND}"


@pytest.mark.parametrize(
    ("name", "asked", "figures", "words"),
    [
        ("query_gpu", device(0), NvidiaSmiProbe.figures, NOT_LISTED),
        (
            "query_gpu_mig",
            device(0, id="MIG-x", uuid="MIG-x", pci_address="0000:3b:00.0", slice="MIG 1g.5gb"),
            FIGURES,
            "not of a slice",
        ),
        ("query_gpu_lost", device(1, pci_address="0000:af:00.0"), NvidiaSmiProbe.figures, "Unknown Error"),
    ],
)
def test_a_card_that_the_tool_cannot_tell_of_is_missing_with_the_reason(
    name: str, asked: Device, figures: Sequence[str], words: str, tmp_path: Path
) -> None:
    (reading,) = smi_probe(tmp_path, Answer(smi.QUERY_GPU, transcript(name))).sample([asked], None)
    assert set(figures) <= set(reading.missing) and words in reading.missing["used_bytes"]
    assert not [figure for figure in FIGURES if getattr(reading, figure) is not None]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(("*",), transcript("error_no_driver"), returncode=9), "ended with 9: NVIDIA-SMI has failed"),
        (Answer(("*",), transcript("error_field")), "memory.usd"),
    ],
)
def test_a_tool_that_fails_is_our_error_with_its_words(tmp_path: Path, answer: Answer, words: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        smi_probe(tmp_path, answer).sample([device(0)], None)
    assert words in str(raised.value)
    assert isinstance(raised.value, UnknownLayout) == (answer.returncode == 0)
