"""The parsers over real output of the tool, where a collection of it lies beside this repository."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nvidia_builders import MIB

from flagperf.errors import UnknownLayout
from flagperf.testing import shared_file
from flagperf_nvidia.smi import parse_compute_apps, parse_list, parse_query_gpu

QUERY = "query_gpu_csv_what_the_exporter_parses"
ERRORS = (
    "driver_library_mismatch",
    "driver_not_loaded",
    "insufficient_permissions",
    "invalid_query_field",
    "no_devices",
)
EXPECTED: list[tuple[str, Callable[[str], Any], Any]] = [
    (f"h100_idle_{QUERY}", parse_query_gpu, [(0, 81559 * MIB, 0.0, 69.85, 41.0)]),
    (f"h100_load_{QUERY}", parse_query_gpu, [(19818 * MIB, 81559 * MIB, 100.0, 631.95, 59.0)]),
    (f"h100mig_idle_{QUERY}", parse_query_gpu, [(59 * MIB, 81559 * MIB, None, 71.15, 42.0)]),
    ("h100_capabilities_list_L", parse_list, [""]),
    ("a100_sxm4_40gb_mig_list_L", parse_list, ["", "MIG 1g.5gb", "MIG 1g.5gb", "", "MIG 1g.5gb"]),
    ("h100mig_capabilities_list_L", parse_list, ["", "MIG 3g.40gb", "MIG 2g.20gb", "MIG 1g.10gb", "MIG 1g.10gb"]),
    ("h100_idle_query_compute_apps_per_process", parse_compute_apps, []),
    ("h100mig_idle_query_compute_apps_per_process", parse_compute_apps, []),
    (
        "h100_load_query_compute_apps_per_process", parse_compute_apps,
        [(11327, 2566 * MIB), (11328, 1542 * MIB), (11345, 15690 * MIB)],
    ),
    ("error_lost_gpu_handle", parse_query_gpu, [(None,) * 5]),
    ("error_lost_gpu_handle", parse_list, [""]),
    ("error_lost_gpu_handle", parse_compute_apps, UnknownLayout),
    *((f"error_{name}", parse, UnknownLayout) for name in ERRORS
      for parse in (parse_query_gpu, parse_list, parse_compute_apps)),
    ("h100_load_query_retired_pages", parse_query_gpu, UnknownLayout),
    ("h100_load_nvidia_smi_default_table", parse_query_gpu, UnknownLayout),
    ("h100_load_dmon_per_device_monitor_incl_PCIe_rx_tx", parse_query_gpu, UnknownLayout),
    ("h100_load_pmon_per_process_monitor", parse_compute_apps, UnknownLayout),
    ("xml_a100-sxm4-v12", parse_query_gpu, UnknownLayout),
]  # fmt: skip
OF_A_READ_OUTPUT = ("*query_gpu_csv*.txt", "*list_L.txt", "*compute_apps*.txt", "error_*.txt")


def capture(name: str) -> str:
    return shared_file(__file__, f"transcripts/nvidia/{name}.txt").read_text()


@pytest.mark.parametrize(("name", "parse", "expected"), EXPECTED)
def test_a_capture_gives_what_it_says(name: str, parse: Callable[[str], Any], expected: Any) -> None:
    text = capture(name)
    if expected is UnknownLayout:
        with pytest.raises(UnknownLayout):
            parse(text)
        return
    assert [_facts(reading, parse) for reading in parse(text)] == expected


def test_every_capture_of_an_output_that_we_read_is_in_the_table() -> None:
    folder = shared_file(__file__, "transcripts/nvidia")
    found = {path.stem for pattern in OF_A_READ_OUTPUT for path in folder.glob(pattern)}
    assert {name for name in found if not name.endswith(".source")} <= {name for name, _, _ in EXPECTED}


def _facts(reading: Any, parse: Callable[[str], Any]) -> Any:
    if parse is parse_list:
        return reading.properties.get("slice", "")
    if parse is parse_compute_apps:
        return reading.pid, reading.used_bytes
    return (
        reading.used_bytes,
        reading.total_bytes,
        reading.utilisation_percent,
        reading.power_watts,
        reading.temperature_celsius,
    )
