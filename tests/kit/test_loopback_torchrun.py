"""The real torch.distributed.run with one worker, which looks at who listens on the port of the store."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flagperf.kit import module_command
from flagperf.kit.loopback_torchrun import loopback_store

distributed = pytest.importorskip("torch.distributed")

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


class LibuvStore:
    """As in torch 2.4: only the store without libuv takes a socket."""

    refused: type[Exception] = NotImplementedError

    def __init__(self, host: str, port: int, *_others: Any, **options: Any) -> None:
        if "master_listen_fd" in options and options.get("use_libuv", True):
            raise self.refused("listen fd")
        self.options = options
        if "master_listen_fd" in options:
            self.listener = socket.socket(fileno=options["master_listen_fd"])
        else:
            self.listener = socket.create_server(("", port))


class StoreWithoutSockets(LibuvStore):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        if "master_listen_fd" in options:
            raise self.refused("listen fd")
        super().__init__(*arguments, **options)


class OldStore(StoreWithoutSockets):
    refused = TypeError


@pytest.mark.parametrize(
    ("kind", "address", "said"),
    [
        (LibuvStore, "127.0.0.1", ""),
        (StoreWithoutSockets, "0.0.0.0", "this torch's store takes no socket: port {} is open on every address\n"),
        (OldStore, "0.0.0.0", "this torch's store takes no socket: port {} is open on every address\n"),
    ],
)
def test_a_store_that_refuses_the_socket(
    kind: type, address: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distributed, "TCPStore", kind)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with loopback_store("127.0.0.1", port, 1, True, multi_tenant=True).listener as listener:
        assert listener.getsockname() == (address, port)
    assert capsys.readouterr().err == said.format(port)
