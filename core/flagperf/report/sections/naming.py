"""Display names of runs, devices and configurations, the same in all reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from flagperf import units
from flagperf.report.texts import Lang, choose, say
from flagperf.spec import Manifest, flatten, page_name
from flagperf.store.run import Run

_NUMERALS_ZH = {1: "单", 2: "两", 3: "三", 4: "四", 5: "五", 6: "六", 7: "七", 8: "八", 9: "九", 10: "十"}
"""How published pages write the number of nodes."""


def vendor_word(run: Run) -> str:
    return _simulated(run, run.job.vendor)


def vendor_title(run: Run, lang: Lang) -> str:
    """The vendor's name in a heading."""
    return _simulated(run, choose(run.job.vendor_title, lang) or run.job.vendor)


def vendor_and_device(vendor: str, device: str) -> str:
    """`vendor device`, or one word if both names are the same."""
    return device if vendor.lower() == device.lower() else f"{vendor} {device}"


def configuration(device: str, num_nodes: int, devices_per_node: int, lang: Lang) -> str:
    num_devices = num_nodes * devices_per_node
    shape = f"{num_nodes}x{devices_per_node}"
    if lang == "zh":
        nodes = f"{_NUMERALS_ZH.get(num_nodes, num_nodes)}机"
        devices = "单卡" if num_devices == 1 else f"{num_devices}卡"
        return f"{device}{nodes}{devices}（{shape}）"
    return f"{device}, {_plural(num_nodes, 'node')}, {_plural(num_devices, 'device')} ({shape})"


def run_configuration(run: Run, lang: Lang) -> str:
    job = run.job
    device = job.device_model.short_name
    if run.simulated:
        device = vendor_and_device(vendor_word(run), device)
    return configuration(device, len(job.nodes), job.devices_per_node, lang)


def short_configuration(run: Run) -> str:
    return f"{vendor_and_device(vendor_word(run), run.job.device_model.short_name)} {run.job.shape}"


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Run id -> its shortest prefix of whole words that is unique among `ids`. Commands accept these prefixes."""
    different = list(dict.fromkeys(ids))
    return {each: _unique_prefix(each, [other for other in different if other != each]) for each in different}


def _unique_prefix(run_id: str, others: Sequence[str]) -> str:
    words = run_id.split("-")
    prefixes = ("-".join(words[:count]) for count in range(1, len(words)))
    return next((each for each in prefixes if not any(other.startswith(each) for other in others)), run_id)


def overrides(run: Run) -> str:
    """Changes from the standard configuration, with the key names of published pages: `bs=96, lr=1.5e-4`. Excludes
    values with a separate column: the precision, and the layout if the page has that column."""
    columns = run.manifest.page.columns
    shown = {"precision", *(_LAYOUT_KEYS if "parallel" in columns else ())}
    return ", ".join(change for key, change in _changes(run).items() if key not in shown)


_LAYOUT_KEYS = ("parallel.tp", "parallel.pp", "parallel.dp")


def layout_ways(run: Run) -> tuple[int, int, int]:
    """Tensor, pipeline and data parallel degree. A case without these keys is data parallel."""
    values = dict(flatten(run.job.config.values))
    tensor, pipeline = (max(1, int(values.get(key, 1))) for key in _LAYOUT_KEYS[:2])
    return tensor, pipeline, run.job.world_size // (tensor * pipeline)


def layout(run: Run) -> str:
    return "".join(f"{name}{ways}" for name, ways in zip(("TP", "PP", "DP"), layout_ways(run), strict=True))


def changes_by_layer(run: Run) -> dict[str, list[str]]:
    """Layer -> its changes from the profile, including the precision."""
    found: dict[str, list[str]] = {}
    for key, layer in run.job.config.deviations.items():
        found.setdefault(layer, []).append(_changes(run)[key])
    return found


def is_published(run: Run) -> bool:
    """Whether this is the configuration of the published results: their profile, with no value changed except by a
    vendor's tuning."""
    return has_published_profile(run) and not run.job.config.user_deviations


def has_published_profile(run: Run) -> bool:
    profile = run.manifest.profiles.get(run.job.profile)
    return profile is not None and profile.published


def _changes(run: Run) -> dict[str, str]:
    values = dict(flatten(run.job.config.values))
    return {key: _change(run.manifest, key, values[key]) for key in run.job.config.deviations}


def _change(manifest: Manifest, key: str, value: object) -> str:
    return f"{page_name(manifest, key)}={units.setting(value)}"


def _simulated(run: Run, word: str) -> str:
    return f"{word} (simulated)" if run.simulated else word


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def of_measured_peak(title: str, marks: Iterable[Collection[str]], lang: Lang) -> str:
    """A title of values with these marks: it says so where all of them are relative to a peak that was measured."""
    found = list(marks)
    is_measured = bool(found) and all("measured_peak" in each for each in found)
    return say("of_measured_peak", lang, title=title) if is_measured else title


def marks_in(runs: Iterable[Run], name: str) -> Iterator[Collection[str]]:
    """Of the metric, in those that have a value of it."""
    metrics = (run.metric(name) for run in runs)
    return (metric.marks for metric in metrics if metric is not None and metric.value is not None)
