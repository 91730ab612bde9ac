"""Sites of recorded bundles, for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from web_runs import CASES

from flagperf.metrics.registry import vocabulary
from flagperf.spec.manifest import Manifest
from flagperf.spec.manifest_reading import read_manifest, with_references
from flagperf_publish.site.site_build import Built, SiteWishes, build_site


def installed(*names: str) -> Mapping[str, Manifest]:
    found = {}
    for name in names or ("distilbert", "aquila_33b"):
        path = CASES / name / "case.toml"
        found[name] = with_references(read_manifest(path, vocabulary()), path, vocabulary())
    return found


def wanted(**changes: Any) -> SiteWishes:
    return SiteWishes(**{"title": "", "lang": "en", "allow_simulated": False, "published": True, **changes})


def build(out: Path, runs_dir: Path, *paths: Path, **changes: Any) -> Built:
    """Of all runs in the folder, or of these."""
    given = paths or tuple(sorted(path.parent for path in runs_dir.glob("*/run.json")))
    return build_site(out, given, wanted(**changes), runs_dir, installed)
