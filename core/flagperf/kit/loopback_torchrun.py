"""torch.distributed.run whose store listens on the loopback address alone, for jobs on one machine.

torch's TCPStore binds to every address of the machine, whatever --master-addr says, and has no option for it: anybody
who reaches the port can write into the store of the job. It does accept a socket that listens already, so that is what
the store of torch.distributed.run's agent gets here. Workers only connect to it.
"""

from __future__ import annotations

import socket
import sys
from typing import Any


def main() -> None:
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

    static_tcp_rendezvous.TCPStore = loopback_store
    run.main(sys.argv[1:])


def loopback_store(host: str, port: int, world_size: int, is_master: bool, *arguments: Any, **options: Any) -> Any:
    """A TCPStore; the one that serves gets a listening socket that is bound to `host`."""
    from torch.distributed import TCPStore

    if is_master:
        options["master_listen_fd"] = _listening(host, port).detach()  # the store closes it
    return TCPStore(host, port, world_size, is_master, *arguments, **options)


def _listening(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), backlog=2048)


if __name__ == "__main__":
    main()
