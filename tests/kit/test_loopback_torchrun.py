"""The real torch.distributed.run with one worker, which looks at who listens on the port of the store."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.kit import module_command

pytest.importorskip("torch")

WORKER = """
import os, psutil
port = int(os.environ["MASTER_PORT"])
print("listens on", *{each.laddr.ip for each in psutil.net_connections("tcp")
                      if each.status == psutil.CONN_LISTEN and each.laddr.port == port})
from torch.distributed import init_process_group
init_process_group("gloo")
print("met as", os.environ["RANK"], os.environ["TORCHELASTIC_USE_AGENT_STORE"])
"""


def test_the_store_listens_on_the_loopback_address_alone_and_workers_meet_there(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = subprocess.run(
        [
            *module_command(sys.executable, "flagperf.kit.loopback_torchrun"),
            *("--nnodes=1", "--node-rank=0", "--nproc-per-node=1", "--max-restarts=0"),
            *("--master-addr=127.0.0.1", f"--master-port={port}", "worker.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["listens on 127.0.0.1", "met as 0 True"]
