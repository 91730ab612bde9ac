"""Deliberately wrong adapters, each caught by the test that is there for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapter_builders import TESTS, Change, make_adapter, run_suites

pytestmark = pytest.mark.run
FULL = pytest.mark.full

QUERIES = "    queries = (Query(smi.QUERY, smi.parse_query, FIGURES),)\n"
USED, TOTAL = (f'Cell(cells["memory.{name} [MiB]"]' for name in ("used", "total"))
ROWS = "    rows = [[cell.strip() for cell in row] for row in csv.reader(whole_lines(text))]\n"
LAUNCHER_END = '(devices=("/dev/acme[0-9]*",))  # Yours: also groups, mounts, security options\n'
BACKEND_END = '        return ""  # Yours: why torch is not your build, e.g. a missing attribute of torch.version\n'
HOOKSPECS = "from flagperf.hookspecs import hookimpl\n"
TEST_LAUNCHER = "class TestLauncher(LauncherSuite):\n"


def sample(*lines: str, figure: str = "") -> str:
    """Return a method for the probe whose readings are those of the tool, changed by these lines."""
    figures = f'    figures = (*FIGURES, "{figure}")\n' if figure else ""
    first = ("import msgspec", "readings = super().sample(devices, launcher_pid)")
    body = "".join(f"        {line}\n" for line in (*first, *lines))
    return f"{figures}\n    def sample(self, devices, launcher_pid):\n{body}\n"


ACCUMULATES = sample(
    "self.sums = getattr(self, 'sums', {})",
    "for reading in readings:",
    "    self.sums[reading.device_id] = self.sums.get(reading.device_id, 0) + reading.used_bytes",
    "return [msgspec.structs.replace(each, used_bytes=self.sums[each.device_id]) for each in readings]",
)
SAYS_NOTHING = sample(
    "return [msgspec.structs.replace(each, temperature_celsius=None, missing={}) for each in readings]"
)
BY_LINE = sample(
    "lines = smi.parse_query(smi.TOOL.run(self._machine, smi.QUERY))",
    "pairs = zip(devices, lines, strict=False)",
    "return [msgspec.structs.replace(line, device_id=device.id) for device, line in pairs]",
)
ENERGY_FALLS = sample(
    "self.left = getattr(self, 'left', 1000.0) - 1",
    "return [msgspec.structs.replace(each, energy_joules=self.left) for each in readings]",
    figure="energy_joules",
)
NUMBERS_FOR_WORDS = sample(
    "return [msgspec.structs.replace(each, throttle_reasons=('0x40',)) for each in readings]", figure="throttle_reasons"
)
SWALLOWS = """
    def sample(self, devices, launcher_pid):
        from flagperf.api import Reading

        try:
            return super().sample(devices, launcher_pid)
        except Exception:
            return [Reading(device.id, 0, device.memory_bytes) for device in devices]

"""
LEAKS = """
    def command(self, share, python, worker_module):
        import msgspec

        start = (
            "import os, subprocess, sys, time\\n"
            "for rank in range(2):\\n"
            "    environ = {**os.environ, 'RANK': str(rank)}\\n"
            "    environ.pop('FLAGPERF_WORKERS_OF')\\n"
            "    subprocess.Popen([sys.executable, '-m', sys.argv[1]], env=environ, start_new_session=True)\\n"
            "time.sleep(600)\\n"
        )
        command = super().command(share, python, worker_module)
        return msgspec.structs.replace(command, argv=(python, "-c", start, worker_module))
"""
DOES_NOT_WAIT = """
    def synchronize(self) -> None:
        pass
"""
ALWAYS_THE_FIRST = """
    def _identify(self, local_rank, devices):
        return devices[0], "uuid"
"""

CLOCK_BY_CHIP = """
def parse_clock(text):
    return [smi.Reading(f"chip-{index}", clock_mhz=900.0) for index in range(2)]


CLOCK = Query(smi.QUERY, parse_clock, ("clock_mhz",))


class AcmeSmiProbe"""
FIGURES = "    figures = FIGURES\n"
POWER_OF_BOARDS = Change("memory.py", FIGURES, f'{FIGURES}    board_figures = ("power_watts",)\n')
TUNING_BY_ANOTHER_NAME = """
[[tuning]]
model = "Acme Inc Acme One"
source = "a guess"
[tuning.values.training]
batch_size = 64
#"""
PEAK_IN_TERA = """
[[model.peak]]
row = "bf16"
value = 256
source = "the data sheet"
confidence = "high"
"""

WRONG: dict[str, tuple[Change | tuple[Change, ...], str]] = {
    "another contract": (
        Change("__init__.py", "FLAGPERF_HOOK_API = 1", "FLAGPERF_HOOK_API = 99"),
        "TestDevice::test_the_plugin_loads_and_accepts_this_core",
    ),
    "megabytes of a million bytes, in the adapter and in its tests": (
        (
            Change("smi.py", f"{TOTAL}, scale=1 << 20)", f"{TOTAL}, scale=10**6)"),
            Change(TESTS, '{number}{number}", 64 * GIB, uuid', '{number}{number}", 65536 * 10**6, uuid'),
            Change(TESTS, "total_bytes=64 * GIB", "total_bytes=65536 * 10**6"),
        ),
        "TestMemory::test_recorded_bytes_are_counted_in_powers_of_two",
    ),
    "a peak in TFLOPS": (
        Change("models.toml", 'name_pattern = "^Acme One$"\n', 'name_pattern = "^Acme One$"\n' + PEAK_IN_TERA),
        "TestDevice::test_peaks_have_a_source_and_a_positive_value",
    ),
    "a board's power that differs from chip to chip": (
        (
            Change("device.py", "memory_bytes=total_bytes)", 'memory_bytes=total_bytes, board="B7")'),
            Change(
                "memory.py", "    figures = FIGURES\n", '    figures = FIGURES\n    board_figures = ("power_watts",)\n'
            ),
            Change(TESTS, "@USED_{index}_MiB@, 71.5, N/A", "@USED_{index}_MiB@, 7{index}.5, N/A"),
        ),
        "TestMemory::test_what_a_board_shares_is_the_same_for_its_chips",
    ),
    "figures of boards on cards that have none": (
        POWER_OF_BOARDS,
        "TestMemory::test_what_a_board_shares_is_the_same_for_its_chips",
    ),
    "tuning under a name that no card has": (
        (
            Change("models.toml", '"^Acme One$"', '"^(Acme Inc )?Acme One$"'),
            Change("src/flagperf_acme/tuning/distilbert.toml", "tuning = []  #", TUNING_BY_ANOTHER_NAME),
        ),
        "TestDevice::test_tuning_can_be_read_and_calls_models_as_models_toml_does",
    ),
    "a device type that torch does not have": (
        Change("device.py", 'torch_type = "cuda"', 'torch_type = "cudda"'),
        "TestDevice::test_torch_knows_the_device_type_and_the_collective_backend",
    ),
    "a collective backend that torch does not have": (
        Change("device.py", 'collective_backend = "nccl"', 'collective_backend = "cpu:gloo,cuda:ncll"'),
        "TestDevice::test_torch_knows_the_device_type_and_the_collective_backend",
    ),
    "readings under a key that is no card's": (
        (
            Change("memory.py", "class AcmeSmiProbe", CLOCK_BY_CHIP),
            Change("memory.py", "smi.parse_query, FIGURES),)", "smi.parse_query, FIGURES), CLOCK)"),
            Change("memory.py", "    figures = FIGURES\n", '    figures = (*FIGURES, "clock_mhz")\n'),
        ),
        "TestMemory::test_every_figure_is_read_of_the_cards_that_are_there",
    ),
    "MiB for bytes": (
        Change("smi.py", f"{USED}, scale=1 << 20)", f"{USED})"),
        "TestMemory::test_bytes_are_bytes_and_belong_to_their_card",
    ),
    "a probe that adds up": (
        Change("memory.py", QUERIES, QUERIES + ACCUMULATES),
        "TestMemory::test_a_second_sample_does_not_add_to_the_first",
    ),
    "cards by the order of lines": (
        Change("memory.py", QUERIES, QUERIES + BY_LINE),
        "TestMemory::test_readings_follow_the_card_and_not_the_order",
    ),
    "a launcher that leaks": (
        Change("launcher.py", LAUNCHER_END, LAUNCHER_END + LEAKS),
        "TestLauncher::test_stopping_leaves_no_process",
    ),
    "an error swallowed": (
        Change("memory.py", QUERIES, QUERIES + SWALLOWS),
        "TestMemory::test_a_source_that_fails_is_our_error_and_never_a_number",
    ),
    "constant memory": (
        Change("smi.py", USED, 'Cell("4096"'),
        "TestMemory::test_the_probe_rises_by_what_is_allocated_and_falls_again",
    ),
    "an energy counter that falls": (
        Change("memory.py", "    figures = FIGURES\n", ENERGY_FALLS),
        "TestMemory::test_an_energy_counter_does_not_fall",
    ),
    "throttling in bits": (
        Change("memory.py", "    figures = FIGURES\n", NUMBERS_FOR_WORDS),
        "TestMemory::test_throttling_is_told_in_plain_words",
    ),
    "torch in a hook": (
        Change("__init__.py", HOOKSPECS, f"import torch\n{HOOKSPECS}"),
        "TestDevice::test_hooks_can_be_called_twice_and_import_no_torch",
    ),
    "an exception where there is no card": (
        Change("device.py", "        tool = smi.TOOL.find(machine)\n", "        tool = smi.TOOL.run(machine, ())\n"),
        "TestDevice::test_absent_hardware_is_clean_absence_and_no_exception",
    ),
    "capacity in GB": (
        Change("smi.py", f"{TOTAL}, scale=1 << 20)", f"{TOTAL}, scale=10**6)"),
        "TestDevice::test_cards_have_their_own_ids_and_capacities_in_bytes",
    ),
    "no visibility variable": (
        Change("launcher.py", 'visibility_variables = ("ACME_VISIBLE_DEVICES",)', "visibility_variables = ()"),
        "TestLauncher::test_visibility_variables_name_exactly_the_cards_of_the_run",
    ),
    "a figure that is missing without a word": (
        Change("memory.py", QUERIES, QUERIES + SAYS_NOTHING),
        "TestMemory::test_what_is_not_there_has_a_reason_and_no_number",
    ),
    "a parser that takes anything": (
        Change("smi.py", ROWS, f'    if not text.startswith("index"):\n        return []\n{ROWS}'),
        "TestMemory::test_malformed_output_gives_our_error",
    ),
    "a parser that does not count the cells": (
        Change("smi.py", "any(len(row) != len(HEADER) for row in rows)", "not HEADER"),
        "TestOutputs::test_no_form_of_an_output_gives_a_wrong_figure",
    ),
    "a synchronize that does not wait": (
        Change("device.py", BACKEND_END, BACKEND_END + DOES_NOT_WAIT),
        "TestDevice::test_synchronize_makes_a_long_kernel_visible",
    ),
    "every rank on the first card": (
        Change("device.py", BACKEND_END, BACKEND_END + ALWAYS_THE_FIRST),
        "TestDevice::test_each_rank_gets_its_own_card_and_says_how_it_was_joined",
    ),
    "cards numbered otherwise than the runtime does": (
        Change("device.py", 'int(said["index"])', '1 - int(said["index"])'),
        "TestDevice::test_visibility_really_hides",
    ),
    "a name pattern that fits half of a name": (
        Change("models.toml", '"^Acme One$"', '"Acme One"'),
        "TestDevice::test_name_patterns_are_anchored_and_fit_one_model_each",
    ),
    "a standard test replaced": (
        Change(TESTS, TEST_LAUNCHER, f"{TEST_LAUNCHER}    test_a_killed_rank_is_named = None\n"),
        "TestLauncher::test_standard_tests_are_not_replaced_but_by_an_xfail_with_its_reason",
    ),
}


ALWAYS = ("another contract", "MiB for bytes", "an error swallowed")
"""Those of `make test`: each of the others starts pytest for one test too."""


@pytest.mark.parametrize("wrong", [*ALWAYS, *(pytest.param(each, marks=FULL) for each in WRONG if each not in ALWAYS)])
def test_it_is_caught(wrong: str, tmp_path: Path) -> None:
    changes, test = WRONG[wrong]
    folder = make_adapter(tmp_path / "adapter", *(changes if isinstance(changes, tuple) else (changes,)))
    done = run_suites(folder, f"{TESTS}::{test}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert test.partition("::")[2] in done.stdout


@FULL
def test_a_card_that_cannot_be_used_is_none_of_those_that_torch_must_see(tmp_path: Path) -> None:
    """As in a container into which some of the machine's cards are mapped."""
    cards = "[_card(reading.properties, reading.total_bytes) for reading in readings]"
    unusable = 'Card(7, ("Acme One",), "GPU-77", problem="not mapped into this container")'
    folder = make_adapter(tmp_path / "adapter", Change("device.py", f"{cards})", f"{cards} + [{unusable}])"))
    done = run_suites(folder, TESTS, "-m", "hardware")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout and "xfailed" not in done.stdout


@FULL
def test_a_module_that_torch_needs_first_need_not_be_installed_for_simulated_cards(tmp_path: Path) -> None:
    """As of a vendor whose torch type comes with a package of its own."""
    own = """torch_type = "acme"
    import_first = ("torch_acme.first",)
    tf32_switches = ("torch_acme:matmul.allow_hf32", "acme.matmul.allow_tf32")"""
    kind = Change("device.py", 'torch_type = "cuda"', own)
    folder = make_adapter(tmp_path / "adapter", kind)
    done = run_suites(folder, TESTS, "-rs", "-k", "torch_knows or own_card or allocated or TestRun")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed, 1 skipped" in done.stdout
    assert "torch cannot know 'acme' here: No module named 'torch_acme'" in done.stdout


NO_TORCH = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec


class Finder:
    def __call__(self, name, *others):
        return None if name == "torch" else find(name, *others)


PathFinder.find_spec = Finder()
"""


@FULL
def test_without_torch_what_needs_it_is_skipped_with_that_reason(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "adapter")
    (folder / "src" / "sitecustomize.py").write_text(NO_TORCH)
    done = run_suites(folder, TESTS, "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    skips = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert skips and all("needs torch, which is not installed here" in line for line in skips), done.stdout
