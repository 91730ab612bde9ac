"""The real things that tests of clusters need, started once for each process of pytest when a test asks for them.

Several of each can run at the same time on one machine, so that pytest-xdist may spread the tests as it likes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_runs import end_started
from hosts import Hosts, two_hosts
from needs import needs_root_and
from podman import Podman, podman_with_image, write_image
from slurm import Slurm, four_nodes


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    needs_root_and("ip", "ssh", "ssh-keygen", "sshd")
    with temporary_folder("hosts") as folder, two_hosts(Path(folder), tmp_path_factory.getbasetemp()) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    needs_root_and("munged", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "slurmctld", "slurmd", "srun")
    with temporary_folder("slurm") as folder, four_nodes(Path(folder)) as slurm:
        yield slurm


@pytest.fixture(autouse=True)
def nothing_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed in the middle must not slow the others down."""
    slurm = request.getfixturevalue("slurm") if "slurm" in request.fixturenames else None
    yield
    end_started()
    if slurm is not None:
        slurm.end_clients()


@pytest.fixture(scope="session")
def image_archive() -> Iterator[Path]:
    needs_root_and("ldd", "podman", "runc")
    with temporary_folder("image") as folder:
        write_image(Path(folder, "image.tar"))
        yield Path(folder, "image.tar")


@pytest.fixture(scope="session")
def podman(image_archive: Path) -> Iterator[Podman]:
    with temporary_folder("podman") as folder, podman_with_image(Path(folder), image_archive) as podman:
        yield podman


@pytest.fixture(scope="session")
def hosts_with_image(hosts: Hosts, image_archive: Path) -> Hosts:
    """Hosts on which a login has a podman with the image."""
    archive = shutil.copy(image_archive, hosts.folder)
    for host in (hosts.alpha, hosts.beta):
        host.podman.add_image(Path(archive))
    return hosts


def temporary_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Its path is short, which those of sockets have to be."""
    return tempfile.TemporaryDirectory(prefix=f"flagperf-{name}-")
