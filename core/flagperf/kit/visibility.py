"""Visibility variables: what an inherited one leaves of the cards, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flagperf.api.device import Device
from flagperf.errors import BadInput

HIDES_ALL = ("", "-1")
"""Entries that are meant to name no card."""


def visible_devices(devices: Sequence[Device], environ: Mapping[str, str], variables: Sequence[str]) -> list[Device]:
    """Set to nothing hides all cards. An entry that names no card hides itself and all that follow it; it may have
    meant a lost card, so those are not hidden."""
    given = {name: environ[name] for name in variables if name in environ}
    if len(set(given.values())) > 1:
        listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise BadInput(f"visibility variables disagree: {listed}. Which of them wins is not known: set them equal")
    if not given:
        return list(devices)
    visible: list[Device] = []
    for entry in next(iter(given.values())).split(","):
        device = _named(entry.strip(), devices)
        if device is None:
            return visible + (_lost(devices) if entry.strip() not in HIDES_ALL else [])
        if device in visible:
            break
        visible.append(device)
    return visible


def _lost(devices: Sequence[Device]) -> list[Device]:
    """A lost card has no number by which it can be named."""
    return [device for device in devices if device.physical_index < 0 and device.problem]


def _named(entry: str, devices: Sequence[Device]) -> Device | None:
    """By index, or by a UUID or a unique beginning of one."""
    if entry.isdigit():
        whole = [device for device in devices if device.physical_index == int(entry)]
        return whole[0] if whole else None
    matching = [device for device in devices if entry and device.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None
