"""Record the bundles of tests/bundles/v1 anew with the code of this checkout: one of every case, and one of every
ending. Write their names and the sha256 of their files beside them.

    .venv/bin/python tests/bundles/record.py

It takes about five minutes. It needs root: the runs are made in namespaces of their own, in which the host is called
`lab`, the checkout is /opt/flagperf and the boot id is none of this machine, so that the bundles are the same whoever
records them. A machine that is otherwise idle marks no run as made on a busy host.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PLACE = Path("/opt/flagperf")
WORK = Path("/tmp/flagperf-recording")
BOOT_ID = "00000000-1111-4222-8333-444444444444"
PROCESS = subprocess.Popen[str]

sys.path[:0] = [str(ROOT / "tests" / "e2e")]
from e2e_flagperf import SITE, wait_for_event, wait_for_step, wait_until_gone  # noqa: E402


def interrupt(process: PROCESS, cwd: Path) -> None:
    """Press Ctrl-C after the first step."""
    wait_for_step(cwd, process)
    process.send_signal(signal.SIGINT)


def kill_worker(process: PROCESS, cwd: Path) -> None:
    """Kill rank 1 after its first step."""
    bundle = wait_for_event(cwd, process, "step_finished", rank=1)
    started = json.loads((bundle / "events" / "rank-00001.jsonl").read_text().splitlines()[0])
    os.kill(started["clock"]["pid"], signal.SIGKILL)


def kill_parent(process: PROCESS, cwd: Path) -> None:
    """Kill the command after the first step."""
    bundle = wait_for_step(cwd, process)
    process.kill()
    process.wait()
    wait_until_gone(bundle)


@dataclass(frozen=True)
class Recording:
    arguments: str
    ending: str | None = "succeeded"
    during: Callable[[PROCESS, Path], None] | None = None
    rig: str = ""
    """Of an adapter's tests, whose cards are simulated."""


QUICK = (
    "--set measure.seconds=0.01 --set measure.min_samples=10 --set measure.warmup_seconds=0.0"
    " --set measure.warmup_cap_seconds=0.02"
)
METAX = "plugins/metax/tests"

RECORDINGS = {
    "distilbert": Recording("distilbert"),
    "glm": Recording("glm --set training.max_steps=60"),
    "llama2_7b_finetune": Recording("llama2_7b_finetune"),
    "llama2_70b": Recording("llama2_70b --set training.max_steps=30"),
    "aquila_33b": Recording("aquila_33b"),
    "distilbert_1x2": Recording("distilbert --devices 2 --set training.max_steps=24"),
    "glm_diverged": Recording("glm --set training.learning_rate=1e30 --set training.max_steps=8"),
    "llama2_70b_2x2": Recording("llama2_70b --nodes 2 --devices 2 --parallel TP2PP2DP1 --set training.max_steps=12"),
    "simulated": Recording(
        "distilbert --vendor metax --devices 2 --profile tiny --set training.max_steps=40",
        rig=f"{METAX}/test_metax_conformance.py:MetaxRig",
    ),
    "timed_out": Recording(
        "distilbert --set training.epochs=100000 --set data.shuffle_labels=true --timeout 12", "timed_out"
    ),
    "interrupted": Recording("distilbert", "interrupted", interrupt),
    "worker_killed": Recording("distilbert --devices 2", "failed", kill_worker),
    "parent_killed": Recording("distilbert", None, kill_parent),
    "out_of_memory": Recording("trouble --set trouble.mode=out_of_memory", "out_of_memory"),
    "failed": Recording("trouble --set trouble.mode=raise", "failed"),
    "unsupported": Recording("trouble --set trouble.mode=unsupported", "unsupported"),
    "target_missed": Recording("trouble --set trouble.mode=miss_target", "target_missed"),
    "gemm": Recording(
        "gemm --devices 2 --set measure.seconds=0.05 --set measure.min_samples=10 --set gemm.headline=256x256x256"
        ' --set gemm.shapes=["128x128x128"]'
    ),
    "memory_bandwidth": Recording(f"memory_bandwidth {QUICK}"),
    "memory_capacity": Recording("memory_capacity"),
    "host_to_device": Recording(f"host_to_device {QUICK}"),
    "peer_to_peer": Recording(f"peer_to_peer --devices 2 {QUICK}"),
    "collectives": Recording(f"collectives --devices 2 {QUICK}"),
    "operators": Recording(
        'operators --set operators.only=["softmax","mm","gelu","argmax","topk"] --set operators.dtypes=["fp32"]'
        f' --set operators.libraries=["eager","compile"] {QUICK}'
    ),
    "operators_recorded": Recording(
        "distilbert --record-operators --set training.max_steps=12 --set training.warmup_steps=2"
    ),
    "operators_replayed": Recording(
        "operators --from {operators_recorded} --set measure.seconds=0.0005 --set measure.min_samples=10"
        " --set measure.warmup_seconds=0.0 --set measure.warmup_cap_seconds=0.01"
    ),
}


def record_all() -> dict[str, Path]:
    """Make the runs, one after the other, and give the bundle of each."""
    bundles: dict[str, Path] = {}
    for name, recording in RECORDINGS.items():
        print(f"{name}: flagperf run {recording.arguments}", flush=True)
        bundles[name] = record(name, recording, bundles)
    return bundles


def record(name: str, recording: Recording, bundles: dict[str, Path]) -> Path:
    cwd = WORK / name
    cwd.mkdir()
    module = ["flagperf.testing.simulate", str(PLACE / recording.rig)] if recording.rig else ["flagperf"]
    words = [word.format(**bundles) if word.startswith("{") else word for word in recording.arguments.split()]
    with (cwd / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *module, "run", *words],
            cwd=cwd, env=environment(), stdout=output, stderr=output, text=True,
        )  # fmt: skip
        if recording.during:
            recording.during(process, cwd)
        process.wait(timeout=600)
    said = (cwd / "output").read_text()
    if not (cwd / "runs").is_dir():
        sys.exit(f"{name} made no bundle:\n{said}")
    (bundle,) = (cwd / "runs").iterdir()
    ending = json.loads((bundle / "run.json").read_text())["ending"]
    status = ending["status"] if ending else None
    if status != recording.ending:
        sys.exit(f"{name} ended as {status}, not as {recording.ending}:\n{said}")
    return bundle


def environment() -> dict[str, str]:
    """Give nothing of the caller's environment but what Python needs."""
    site = PLACE / SITE.relative_to(ROOT)
    folders = [PLACE / "core", PLACE / "cases", *PLACE.glob("plugins/*/src"), PLACE / METAX, site]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_WAIT_POLICY": "passive"}


def write(bundles: dict[str, Path]) -> None:
    """Put the bundles in the place of those of before."""
    folder = HERE / "v1"
    shutil.rmtree(folder, ignore_errors=True)
    for bundle in bundles.values():
        shutil.copytree(bundle, folder / bundle.name)
    (HERE / "v1.json").write_text(json.dumps({name: path.name for name, path in bundles.items()}, indent=1) + "\n")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}\n" for path in files]
    (HERE / "v1.sha256").write_text("".join(lines))


def enter() -> None:
    """Start this script again in namespaces of its own."""
    if os.geteuid() != 0:
        sys.exit("recording needs root: it gives the host and the checkout the names that all bundles have")
    command = ["unshare", "--uts", "--mount", sys.executable, __file__, "--inside"]
    done = subprocess.run(command, check=False)
    if ROOT != PLACE:
        PLACE.rmdir()  # the empty folder on which the checkout was mounted
    sys.exit(done.returncode)


def settle() -> None:
    """Give the host, the checkout and the boot the names that all bundles have."""
    socket.sethostname("lab")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    (WORK / "boot_id").write_text(f"{BOOT_ID}\n")
    subprocess.run(["mount", "--bind", WORK / "boot_id", "/proc/sys/kernel/random/boot_id"], check=True)
    if ROOT != PLACE:
        PLACE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", ROOT, PLACE], check=True)
        sys.executable = sys.executable.replace(str(ROOT), str(PLACE))


if __name__ == "__main__":
    if sys.argv[1:] != ["--inside"]:
        enter()
    settle()
    write(record_all())
    shutil.rmtree(WORK)
