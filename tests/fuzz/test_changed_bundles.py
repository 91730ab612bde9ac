"""A real run, then its bundle in other hands: any digit changed and MANIFEST rewritten, files damaged in every way."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, flagperf
from fuzz_harness import check
from hostile import damage, is_file_still
from recorded_bundles import FOLDER, IDS

from flagperf.bundle.bundle import file_digests, write_manifest
from flagperf.bundle.verify import verify_bundle

pytestmark = [pytest.mark.run, pytest.mark.full]

COMPARED = IDS["distilbert_1x2"]
SETTINGS = ["data.rows=256", "data.eval_rows=50", "training.epochs=1", "evaluation.target=0"]

DIGITS_PER_FILE = 60
DAMAGED_BUNDLES = 300

COMMANDS = (
    "runs list --runs-dir FOLDER",
    "runs list --runs-dir FOLDER --json",
    *(f"runs {verb} BUNDLE" for verb in ("show", "show --json", "path", "curve", "curve --json", "verify --json")),
    "report BUNDLE",
    *(f"report BUNDLE --format md --lang {lang} --allow-simulated" for lang in ("en", "zh")),
    "report BUNDLE --format json",
    "align BUNDLE BUNDLE",
    "align BUNDLE BUNDLE --json",
    "compare BUNDLE OTHER --allow-simulated",
    "compare OTHER BUNDLE --allow-simulated --format csv",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    done = flagperf(folder, "run", "distilbert", "--vendor", "cpu", "--sample-seconds", "0.1", "-q", "--set", *SETTINGS)
    assert done.code == 0, done.stderr
    bundle = bundle_of(folder)
    assert verify_bundle(bundle).problems == ()
    return bundle


def test_one_digit_changed_anywhere_is_named_although_manifest_was_rewritten(recorded: Path, tmp_path: Path) -> None:
    """A sample of all places; the seed is the file's name."""
    bundle = tmp_path / recorded.name
    shutil.copytree(recorded, bundle)
    names = ["run.json", "environment.json", "events/parent.jsonl", "events/rank-00000.jsonl", "samples/node-000.jsonl"]
    unnamed = []
    for name in names:
        before = (bundle / name).read_bytes()
        digits = [place for place, byte in enumerate(before) if chr(byte).isdigit()]
        for place in random.Random(name).sample(digits, DIGITS_PER_FILE):
            other = b"%d" % ((before[place] - ord("0") + 1 + place % 8) % 10)
            (bundle / name).write_bytes(before[:place] + other + before[place + 1 :])
            write_manifest(bundle, file_digests(bundle))
            if not any(name in problem for problem in verify_bundle(bundle).problems):
                unnamed.append((name, place))
        (bundle / name).write_bytes(before)
    assert unnamed == []
    write_manifest(bundle, file_digests(bundle))
    assert verify_bundle(bundle).problems == ()


def test_a_damaged_bundle_is_one_message_in_every_command(recorded: Path, tmp_path: Path) -> None:
    bundles = [recorded, *sorted(path for path in FOLDER.iterdir() if path.is_dir())]
    for seed in range(DAMAGED_BUNDLES):
        original = bundles[0 if seed % 2 else seed // 2 % len(bundles)]
        bundle = tmp_path / "runs" / original.name
        shutil.copytree(original, bundle)
        how = damage(bundle, seed)
        if seed % 4 < 2 and is_file_still(how):
            write_manifest(bundle, file_digests(bundle))
        verdict = check(["runs", "verify", str(bundle)], how)
        if original == recorded and (not is_file_still(how) or file_digests(bundle) != file_digests(original)):
            assert verdict.code == 3, how
        for command in random.Random(seed).sample(COMMANDS, 2):
            words = {"BUNDLE": str(bundle), "FOLDER": str(bundle.parent), "OTHER": str(FOLDER / COMPARED)}
            check([words.get(word, word) for word in command.split()], how)
        shutil.rmtree(bundle)


# --- little memory --------------------------------------------------------------------------------------------------

LIMITED = """
import msgspec
import sys
from flagperf.cli import run_cli
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.bundle.bundle import read_bundle, read_record
from pathlib import Path
bundle = Path(sys.argv[1])
codes = [run_cli(["runs", "verify", str(bundle)]), run_cli(["report", str(bundle), "--format", "md"])]
run = read_bundle(bundle).run
metrics = compute_metrics(Observed(run.job, run.manifest, read_record(bundle)))  # as at the end of a run
assert msgspec.json.encode(metrics) == msgspec.json.encode(run.metrics)
print(codes)
"""


def test_the_files_of_a_run_are_read_by_their_size(recorded: Path) -> None:
    """Two event files of up to 2 GiB each are allowed; what is read into memory is what they have."""
    limit = 1 << 30
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(recorded)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1:] == ["[0, 0]"], done.stderr
