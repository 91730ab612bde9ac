"""NVML through nvidia-ml-py. The only module that imports pynvml, and it does so in agent and probe processes only.

Nothing here changes a card: no call whose name has Set, Reset or Clear.
"""

from __future__ import annotations

import contextlib
import importlib
from importlib import metadata
from types import TracebackType
from typing import Any

import msgspec

from flagperf.errors import ToolFailed
from flagperf.kit import pci_address
from flagperf_nvidia.health import PAGES_WAIT, row_problem

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
FUNCTION_MISSING = 13
LOST = 15
RESET_REQUIRED = 16
BLOCKED = 17
VERSION_MISMATCH = 25

VENDOR_ID = "10de"

_ROUNDING_BYTES = 2 << 20
_TEMPERATURE_OF_THE_CHIP = 0
_CLOCK_OF_THE_SMS = 1

_IDLE = 0x1
_THROTTLE_WORDS = {
    0x2: "clock setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReason*, in older bindings nvmlClocksThrottleReason*."""


class NvmlFailed(ToolFailed):
    def __init__(self, call: str, words: str, code: int) -> None:
        super().__init__(f"{call}: {words} (NVML {code})")
        self.code = code


class CardMemory(msgspec.Struct, frozen=True):
    total_bytes: int
    used_bytes: int
    form: str
    """Which call gave it, and whether `used` has the driver's reserved memory in it."""


class PciPlace(msgspec.Struct, frozen=True):
    address: str
    vendor_id: str
    device_id: str


class Nvml:
    """A session. NVML counts how often it was opened, so every `open` has its `close`."""

    def __init__(self) -> None:
        self._pynvml: Any = None

    def __enter__(self) -> Nvml:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Raises ToolFailed where there is no library, or one of another vendor that answers in NVML's name."""
        try:
            self._pynvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise ToolFailed(f"pynvml cannot be imported ({error}): pip install nvidia-ml-py") from None
        self._call("nvmlInit")
        try:
            self._refuse_strangers()
        except ToolFailed:
            self.close()
            raise

    def close(self) -> None:
        self._call("nvmlShutdown")

    def driver_version(self) -> str:
        return _text(self._call("nvmlSystemGetDriverVersion"))

    def cuda_version(self) -> str:
        """The newest CUDA that the driver supports: 12040 is 12.4."""
        number = int(self._call("nvmlSystemGetCudaDriverVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def count(self) -> int:
        return int(self._call("nvmlDeviceGetCount"))

    def handle(self, index: int) -> Any:
        return self._call("nvmlDeviceGetHandleByIndex", index)

    def handle_of(self, uuid: str, address: str) -> Any:
        if uuid:
            return self._call("nvmlDeviceGetHandleByUUID", uuid)
        return self._call("nvmlDeviceGetHandleByPciBusId", address)

    def name(self, handle: Any) -> str:
        return _text(self._call("nvmlDeviceGetName", handle))

    def uuid(self, handle: Any) -> str:
        return _text(self._call("nvmlDeviceGetUUID", handle))

    def pci(self, handle: Any) -> PciPlace:
        info = self._call("nvmlDeviceGetPciInfo", handle)
        both = int(info.pciDeviceId)
        return PciPlace(pci_address(_text(info.busId)), f"{both & 0xFFFF:04x}", f"{both >> 16:04x}")

    def memory(self, handle: Any) -> CardMemory:
        """The newer call where driver and binding have it, else the older one, which counts reserved memory as used.
        Of memory that is the host's (GB10) NVML says that it is not supported, or a total of 0."""
        memory = self._memory(handle)
        if memory.total_bytes == 0:
            raise NvmlFailed("nvmlDeviceGetMemoryInfo", "a total of 0 bytes", NOT_SUPPORTED)
        return memory

    def _memory(self, handle: Any) -> CardMemory:
        version = getattr(self._pynvml, "nvmlMemory_v2", None)
        if version is not None:
            try:
                return _memory_v2(self._call("nvmlDeviceGetMemoryInfo", handle, version))
            except NvmlFailed as error:
                if error.code not in (NOT_SUPPORTED, FUNCTION_MISSING, VERSION_MISMATCH):
                    raise
        info = self._call("nvmlDeviceGetMemoryInfo", handle)
        return CardMemory(int(info.total), int(info.used), "v1, used includes reserved")

    def trouble(self, handle: Any) -> str:
        """Why a card cannot be used though it answers; "" where nothing says so."""
        try:
            self._ask_whether_lost(handle)
            _, num_uncorrectable, is_pending, has_failed = self._call("nvmlDeviceGetRemappedRows", handle)
            return row_problem(num_uncorrectable, bool(is_pending), bool(has_failed))
        except NvmlFailed as error:
            if error.code in (LOST, RESET_REQUIRED):
                return str(error)
        with contextlib.suppress(NvmlFailed):  # cards before Ampere retire pages
            return PAGES_WAIT if self._call("nvmlDeviceGetRetiredPagesPendingStatus", handle) else ""
        return ""

    def _ask_whether_lost(self, handle: Any) -> None:
        """Name and UUID of a lost card are remembered by the library: what has to be read from the card tells."""
        for ask in (self.temperature_celsius, self.utilisation_percent, self.power_watts):
            try:
                ask(handle)
            except NvmlFailed as error:
                if error.code in (LOST, RESET_REQUIRED):
                    raise

    def utilisation_percent(self, handle: Any) -> float:
        return float(self._call("nvmlDeviceGetUtilizationRates", handle).gpu)

    def power_watts(self, handle: Any) -> float:
        return float(self._call("nvmlDeviceGetPowerUsage", handle)) / 1000

    def temperature_celsius(self, handle: Any) -> float:
        return float(self._call("nvmlDeviceGetTemperature", handle, _TEMPERATURE_OF_THE_CHIP))

    def energy_joules(self, handle: Any) -> float:
        """Since the driver was loaded; counted in millijoules, from Volta on."""
        return float(self._call("nvmlDeviceGetTotalEnergyConsumption", handle)) / 1000

    def clock_mhz(self, handle: Any) -> float:
        return float(self._call("nvmlDeviceGetClockInfo", handle, _CLOCK_OF_THE_SMS))

    def throttle_reasons(self, handle: Any) -> tuple[str, ...]:
        """By the call of driver 535 and later, else by its name before."""
        try:
            bits = int(self._call("nvmlDeviceGetCurrentClocksEventReasons", handle))
        except NvmlFailed as error:
            if error.code != FUNCTION_MISSING:
                raise
            bits = int(self._call("nvmlDeviceGetCurrentClocksThrottleReasons", handle))
        return throttle_words(bits)

    def power_limit_watts(self, handle: Any) -> float:
        return float(self._call("nvmlDeviceGetEnforcedPowerLimit", handle)) / 1000

    def power_default_limit_watts(self, handle: Any) -> float:
        return float(self._call("nvmlDeviceGetPowerManagementDefaultLimit", handle)) / 1000

    def processes(self, handle: Any) -> list[tuple[int, int | None]]:
        """pid and bytes. The pids are the host's: in a container they may name nobody here."""
        try:
            found = self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        except NvmlFailed as error:
            if error.code != FUNCTION_MISSING:
                raise
            found = self._call("nvmlDeviceGetComputeRunningProcesses_v2", handle)
        return [(int(each.pid), each.usedGpuMemory) for each in found]

    def is_sliced(self, handle: Any) -> bool:
        """Whether MIG mode is on. Cards and drivers that do not know it say so by an error."""
        try:
            return bool(self._call("nvmlDeviceGetMigMode", handle)[0])
        except NvmlFailed as error:
            if error.code in (NOT_SUPPORTED, FUNCTION_MISSING):
                return False
            raise

    def slices(self, handle: Any) -> list[Any]:
        """Handles of a card's MIG slices. Their numbers may have holes."""
        found = []
        for index in range(int(self._call("nvmlDeviceGetMaxMigDeviceCount", handle))):
            try:
                found.append(self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index))
            except NvmlFailed as error:
                if error.code != NOT_FOUND:
                    raise
        return found

    def gpu_instance(self, handle: Any) -> int | None:
        """The part of the memory that a slice computes in; None where an old driver does not tell."""
        try:
            return int(self._call("nvmlDeviceGetGpuInstanceId", handle))
        except NvmlFailed:
            return None

    def _refuse_strangers(self) -> None:
        """Another vendor ships a library that answers to NVML's name for its own cards."""
        for index in range(self.count()):
            try:
                vendor_id = self.pci(self.handle(index)).vendor_id
            except NvmlFailed:
                continue  # lost or not ours: it says nothing of whose library this is
            if vendor_id != VENDOR_ID:
                raise ToolFailed(f"libnvidia-ml.so.1 answers for a card of PCI vendor {vendor_id}: it is not NVIDIA's")

    def _call(self, name: str, *arguments: Any) -> Any:
        function = getattr(self._pynvml, name, None)
        if function is None:
            raise NvmlFailed(name, "not in this version of nvidia-ml-py", FUNCTION_MISSING)
        try:
            return function(*arguments)
        except self._pynvml.NVMLError as error:
            raise NvmlFailed(name, str(error), int(error.value)) from None


def throttle_words(bits: int) -> tuple[str, ...]:
    """A card that is idle is not throttled. A bit that is not known is said by its number."""
    held = [1 << place for place in range(bits.bit_length()) if bits >> place & 1 and 1 << place != _IDLE]
    return tuple(_THROTTLE_WORDS.get(bit, f"unknown reason 0x{bit:x}") for bit in held)


def binding() -> str:
    """The installed distributions that give a module pynvml. More than one: an old one may hide nvidia-ml-py's."""
    found = []
    for name in ("nvidia-ml-py", "nvidia-ml-py3", "pynvml"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return ", ".join(found)


def _memory_v2(info: Any) -> CardMemory:
    total, used, free, reserved = (int(getattr(info, name)) for name in ("total", "used", "free", "reserved"))
    if abs(total - used - free - reserved) <= _ROUNDING_BYTES:
        form = "v2"
    elif abs(total - used - free) <= _ROUNDING_BYTES:
        form = "v2, used includes reserved"  # as older documentation has it
    else:
        form = "v2, does not add up"
    return CardMemory(total, used, form)


def _text(value: str | bytes) -> str:
    """Old releases of the binding give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
