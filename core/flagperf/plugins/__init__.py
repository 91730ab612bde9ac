"""Installed plugins: loaded one by one, joined by vendor word, each problem kept with its reason."""

from flagperf.plugins.load import PluginStatus, core_version
from flagperf.plugins.registry import Case, Given, Plugins, load_plugins

__all__ = ["Case", "Given", "PluginStatus", "Plugins", "core_version", "load_plugins"]
