"""torch.distributed.run whose store listens on the loopback address alone, for jobs on one machine.

torch's TCPStore binds to every address of the machine, whatever --master-addr says, and has no option for it: anybody
who reaches the port can write into the store of the job. It does accept a socket that listens already, so that is what
the store of torch.distributed.run's agent gets here. Workers only connect to it.
"""

from __future__ import annotations

import functools
import socket
import sys
from typing import Any


def main() -> None:
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

    static_tcp_rendezvous.TCPStore = loopback_store
    run.main(sys.argv[1:])


def loopback_store(host: str, port: int, world_size: int, is_master: bool, *arguments: Any, **options: Any) -> Any:
    """Return a TCPStore. The one that serves gets a listening socket that is bound to `host`.

    The store on libuv, which is the default from torch 2.4 on, did not take a socket at first; older ones have no such
    option."""
    from torch.distributed import TCPStore

    make = functools.partial(TCPStore, host, port, world_size, is_master, *arguments, **options)
    for option in ({"use_libuv": False}, {}) if is_master else ():
        listening = socket.create_server((host, port), backlog=2048)
        try:
            store = make(master_listen_fd=listening.fileno(), **option)
        except (NotImplementedError, TypeError):
            listening.close()
            continue
        listening.detach()  # the store closes it
        return store
    if is_master:
        print(f"this torch's store takes no socket: port {port} is open on every address", file=sys.stderr)
    return make()


if __name__ == "__main__":
    main()
