"""How runs, devices and configurations are called, everywhere alike."""

from __future__ import annotations

from flagperf import units
from flagperf.report.texts import NUM_NODES_ZH, Lang, choose
from flagperf.spec import TUNING_LAYER, Manifest, flatten, page_name
from flagperf.store.run import Run


def vendor_word(run: Run) -> str:
    return _simulated(run, run.job.vendor)


def vendor_title(run: Run, lang: Lang) -> str:
    """The vendor's name in a heading."""
    return _simulated(run, choose(run.job.vendor_title, lang) or run.job.vendor)


def vendor_and_device(vendor: str, device: str) -> str:
    """Both words, or one where a vendor and its device are called the same."""
    return device if vendor.lower() == device.lower() else f"{vendor} {device}"


def configuration(device: str, num_nodes: int, devices_per_node: int, lang: Lang) -> str:
    num_devices = num_nodes * devices_per_node
    shape = f"{num_nodes}x{devices_per_node}"
    if lang == "zh":
        nodes = NUM_NODES_ZH.get(num_nodes, f"{num_nodes}机")
        devices = "单卡" if num_devices == 1 else f"{num_devices}卡"
        return f"{device}{nodes}{devices}（{shape}）"
    return f"{device}, {_plural(num_nodes, 'node')}, {_plural(num_devices, 'device')} ({shape})"


def run_configuration(run: Run, lang: Lang) -> str:
    job = run.job
    return configuration(job.device_model.short_name, len(job.nodes), job.devices_per_node, lang)


def overrides(run: Run) -> str:
    """What differs from the standard configuration, by the names of published pages: `bs=96, lr=1.5e-4`."""
    return ", ".join(changes(run).values())


def tuned_overrides(run: Run) -> dict[str, list[str]]:
    """Those of the overrides that came from a vendor's tuning, by the name of the layer."""
    tuned: dict[str, list[str]] = {}
    for key, change in changes(run).items():
        layer = run.job.config.deviations[key]
        if layer.startswith(TUNING_LAYER):
            tuned.setdefault(layer, []).append(change)
    return tuned


def changes(run: Run) -> dict[str, str]:
    """Without precision, which has a column of its own."""
    values = dict(flatten(run.job.config.values))
    changed = [key for key in run.job.config.deviations if key != "precision"]
    return {key: _change(run.manifest, key, values[key]) for key in changed}


def is_published(run: Run) -> bool:
    """Whether the profile is the one that published results belong to."""
    profile = run.manifest.profiles.get(run.job.profile)
    return profile is not None and profile.published


def _change(manifest: Manifest, key: str, value: object) -> str:
    return f"{page_name(manifest, key)}={units.setting(value)}"


def _simulated(run: Run, word: str) -> str:
    return f"{word} (simulated)" if run.simulated else word


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
