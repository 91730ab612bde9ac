"""Installed plugins: loaded one by one, joined by vendor word, each problem kept with its reason."""

from flagperf.plugins.cases import Case
from flagperf.plugins.load import ADAPTER_PREFIX, PluginStatus, core_version, trial_seconds
from flagperf.plugins.registry import Plugins, Provided, load_plugins

__all__ = [
    "ADAPTER_PREFIX",
    "Case",
    "PluginStatus",
    "Plugins",
    "Provided",
    "core_version",
    "load_plugins",
    "trial_seconds",
]
