"""Which plugins give the libraries of operators that a run compares."""

from __future__ import annotations

from flagperf.api import TORCH_LIBRARIES
from flagperf.errors import unknown_name
from flagperf.plugins.installed import Plugins
from flagperf.spec import Manifest, Resolved, flatten


def operator_libraries(manifest: Manifest, config: Resolved, plugins: Plugins) -> dict[str, str]:
    """Library -> distribution and version of its plugin, without what torch has itself. Raises BadInput for a name that
    no plugin gives."""
    if manifest.libraries_key is None:
        return {}
    names = [name for name in dict(flatten(config.values))[manifest.libraries_key] if name not in TORCH_LIBRARIES]
    known = plugins.operator_libraries() if names else {}
    for name in names:
        if name not in known:
            hint = (
                plugins.hint("flagperf_operator_libraries") or "(libraries come with plugins: docs/add-an-operator.md)"
            )
            raise unknown_name("operator library", str(name), [*TORCH_LIBRARIES, *known], hint)
    return {name: known[name].adapter for name in names}
