from __future__ import annotations

import subprocess
from pathlib import Path

from podman import IMAGE, Podman

from flagperf.api import ContainerNeeds
from flagperf.fleet.containers import Container, container_command, image_question, read_image

ODD = """it's "odd" $(id);,"""


def answer(podman: Podman, container: Container, needs: ContainerNeeds, data: Path, *command: str, said: bytes) -> str:
    argv = container_command(
        container, needs, str(data), command, name="flagperf-test-0", variables=["CARDS", "NOT_SET"]
    )
    environment = {**podman.environment, "CARDS": "2,3"}
    done = subprocess.run(argv, env=environment, input=said, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert podman.containers() == []
    return done.stdout.decode()


def test_a_container_has_what_the_node_has_of_devices_mounts_and_data(podman: Podman, tmp_path: Path) -> None:
    data, tool = tmp_path / ODD, tmp_path / "acme_smi"
    data.mkdir()
    (data / "rows").write_text("some rows\n")
    tool.write_text("a tool\n")
    needs = ContainerNeeds(
        devices=("/dev/kms[g]", "/dev/no-such-card*"),
        groups=("video",),
        mounts=(f"{tmp_path}/acme[-_]smi",),
        security_options=("seccomp=unconfined",),
    )
    script = """
        cat "$1/rows" "$2" -
        ls /dev/kmsg
        echo "cards $CARDS, ${NOT_SET-unset}"
        (echo x > "$1/new") 2> /dev/null || echo "read-only"
    """
    said = answer(
        podman, Container(IMAGE), needs, data, "sh", "-c", script, "sh", str(data), str(tool), said=b"stdin\n"
    )
    assert said.splitlines() == ["some rows", "a tool", "stdin", "/dev/kmsg", "cards 2,3, unset", "read-only"]


def test_podman_tells_which_image_it_is(podman: Podman) -> None:
    container = Container(IMAGE)
    question = image_question(container)
    printed = subprocess.run(question, env=podman.environment, capture_output=True, text=True, check=True).stdout
    image = read_image(container, printed)
    assert image.id == f"sha256:{podman.image_id()}"
    assert [digest.partition("@")[0] for digest in image.digests] == [IMAGE.partition(":")[0]]
