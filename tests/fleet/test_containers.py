from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flagperf.api import ContainerNeeds
from flagperf.errors import BadInput, PluginFailed, UnknownLayout
from flagperf.fleet.containers import (
    ON_THE_NODE,
    Container,
    ContainerImage,
    container_command,
    image_question,
    read_image,
)

AGENT = ["/opt/python", "-m", "flagperf.agent", "serve"]
NOTHING = ContainerNeeds()
CARDS = ContainerNeeds(
    devices=("/dev/card", "/dev/card[0-9]*", "acme.com/card=all"),
    groups=("video",),
    mounts=("/opt/acme", "/usr/bin/acme[-_]smi"),
    security_options=("seccomp=unconfined",),
    apptainer_options=("--acme",),
)
ODD = """it's "odd" $(touch x) `id` ; & * [a] \\ !"""
"""Part of a folder's name that a shell would like to change."""
DIGITS = "0123456789abcdef" * 4


def command(
    needs: ContainerNeeds = NOTHING, data_dir: str | None = None, name: str = "flagperf-1-0", **fields: Any
) -> list[str]:
    container = Container(**{"image": "registry/image:1", **fields})
    return container_command(container, needs, data_dir, AGENT, name=name, variables=("CARDS",))


def node_words(argv: list[str]) -> str:
    """What the shell on the node gets to fill in."""
    assert argv[:4] == ["sh", "-c", ON_THE_NODE, "flagperf"]
    return shlex.join(argv[4:])


PLAIN = (
    "--rm --interactive --name=flagperf-1-0 --network=host --ipc=host --pids-limit=-1 --log-driver=none --entrypoint= "
    "--security-opt=label=disable --security-opt=no-new-privileges"
)
FOUND = (
    "--device=/dev/card '@--device=/dev/card[0-9]*' --device=acme.com/card=all '@--device=/dev/infiniband*' "
    "'@--volume=/usr/bin/acme[-_]smi'"
)
IMAGE = "registry/image:1 /opt/python -m flagperf.agent serve"
SHARES_ACME = "type=bind,source=/opt/acme,target=/opt/acme,readonly"


def test_podman_has_what_the_cards_need_and_without_cards_is_a_plain_command() -> None:
    assert shlex.join(command(data_dir="/data")) == (
        f"podman run {PLAIN} --env=CARDS --user=0:0 --volume=/data:/data:ro {IMAGE}"
    )
    assert node_words(command(CARDS)) == (
        f"podman run {PLAIN} --security-opt=seccomp=unconfined --env=CARDS --user=0:0 --group-add=keep-groups "
        f"--volume=/opt/acme:/opt/acme:ro {FOUND} {IMAGE}"
    )


def test_docker_runs_as_the_nodes_user_with_the_nodes_groups() -> None:
    assert node_words(command(CARDS, "/data, all", engine="docker")) == (
        f"docker run {PLAIN} --security-opt=seccomp=unconfined --env=CARDS @user --env=USER=flagperf --env=HOME=/tmp "
        f"--ulimit=memlock=-1:-1 @group=video --mount={SHARES_ACME} "
        f"""'--mount=type=bind,"source=/data, all","target=/data, all",readonly' {FOUND} {IMAGE}"""
    )


def test_apptainer_has_the_nodes_devices_anyway() -> None:
    assert node_words(command(CARDS, "/data", engine="apptainer")) == (
        f"apptainer exec --acme --mount={SHARES_ACME} --mount=type=bind,source=/data,target=/data,readonly "
        f"'@--bind=/usr/bin/acme[-_]smi' {IMAGE}"
    )


def test_pyxis_gives_options_of_srun() -> None:
    needs = ContainerNeeds(devices=("/dev/card[0-9]",), mounts=("/opt/acme",))
    image, agent = "--container-image=registry/image:1", shlex.join(AGENT)
    assert shlex.join(command(needs, "/data", engine="pyxis", arguments=("--container-writable",))) == (
        f"{image} --container-mounts=/opt/acme:/opt/acme:ro,/data:/data:ro --container-writable {agent}"
    )
    assert shlex.join(command(engine="pyxis")) == f"{image} {agent}"
    with pytest.raises(BadInput, match=r"pyxis cannot mount /usr/bin/acme\[-_\]smi"):
        command(CARDS, engine="pyxis")


def test_arguments_of_the_user_are_before_run_and_after_all_others_and_shared_memory_may_be_its_own() -> None:
    words = command(engine_arguments=("--runtime", "runc"), arguments=("--ulimit", "nofile=4096:4096"), shm_size="64g")
    assert words[:4] == ["podman", "--runtime", "runc", "run"]
    assert words[-7:-4] == ["--ulimit", "nofile=4096:4096", "registry/image:1"]
    assert "--shm-size=64g" in words and "--ipc=host" not in words


def test_each_place_in_the_container_is_mounted_once_and_the_users_wish_wins() -> None:
    needs = ContainerNeeds(mounts=("/opt/acme", "/bin/acme[-_]smi"))
    words = command(needs, "/data", mounts=("/new:/opt/acme", "/data:rw", "/new:/bin/acme_smi"))
    assert [word for word in words if word.startswith("--volume")] == [
        "--volume=/new:/opt/acme:ro",
        "--volume=/data:/data:rw",
        "--volume=/new:/bin/acme_smi:ro",
    ]


# --- on the node ----------------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Device files, a tool, and engines that print the arguments that they get, each with a null byte."""
    for name in ("dev/card0", "dev/card 1", "dev/cardctl", "bin/acme_smi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for engine in ("podman", "docker", "apptainer"):
        (tmp_path / "bin" / engine).write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
        (tmp_path / "bin" / engine).chmod(0o755)
    return tmp_path


def received(node: Path, argv: list[str]) -> list[str]:
    environ = {**os.environ, "PATH": f"{node}/bin:{os.environ['PATH']}"}
    done = subprocess.run(argv, env=environ, cwd=node, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split("\0")[:-1]


def test_patterns_become_what_the_node_has_and_the_rest_is_carried_exactly(node: Path) -> None:
    (node / f"{ODD}1").touch()  # would be found if the data folder were a pattern
    needs = ContainerNeeds(
        devices=(f"{node}/dev/card[0-9 ]*", f"{node}/dev/none*"), mounts=(f"{node}/bin/acme[-_]smi", f"{node}/none*")
    )
    odd = f"{node}/{ODD}"
    got = received(node, command(needs, odd, arguments=(f"--label={ODD}",)))
    assert got[got.index("--user=0:0") + 1 :] == [
        f"--volume={odd}:{odd}:ro",
        f"--device={node}/dev/card 1",
        f"--device={node}/dev/card0",
        *[word for word in got if word.startswith("--device=/dev/infiniband")],
        f"--volume={node}/bin/acme_smi:{node}/bin/acme_smi:ro",
        f"--label={ODD}",
        "registry/image:1",
        *AGENT,
    ]
    assert not (node / "x").exists()


def test_docker_gets_numbers_of_the_node_and_apptainer_binds_what_it_has(node: Path) -> None:
    got = received(node, command(ContainerNeeds(groups=("root", "no-such-group")), engine="docker"))
    assert f"--user={os.getuid()}:{os.getgid()}" in got
    assert [word for word in got if word.startswith("--group-add")] == ["--group-add=0"]
    needs = ContainerNeeds(mounts=(f"{node}/bin/acme[-_]smi",))
    assert received(node, command(needs, engine="apptainer"))[1] == f"--bind={node}/bin/acme_smi:{node}/bin/acme_smi:ro"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_login_shell_carries_it(node: Path, shell: str) -> None:
    argv = command(ContainerNeeds(devices=(f"{node}/dev/cardctl*",)), f"{node}/{ODD}")
    assert received(node, [shell, "-c", shlex.join(argv)]) == received(node, argv)
    assert not set("\n!'\\") & set(ON_THE_NODE)


# --- which image ----------------------------------------------------------------------------------------------------


def test_engines_are_asked_for_the_image_and_a_file_is_known_by_its_contents(tmp_path: Path) -> None:
    podman = Container("a/b:1", engine_arguments=("--root", "/images"))
    question = image_question(podman)
    assert (question[:5], question[-1]) == (["podman", "--root", "/images", "image", "inspect"], "a/b:1")
    digests = (f"a/b@sha256:{DIGITS}", f"c@sha256:{DIGITS}")
    assert read_image(podman, f"{DIGITS} {' '.join(digests)}\n") == ContainerImage(f"sha256:{DIGITS}", digests)
    assert read_image(Container("a", engine="docker"), f"sha256:{DIGITS}\n") == ContainerImage(f"sha256:{DIGITS}")
    image = tmp_path / "back\\slash.sif"
    image.write_bytes(b"image")
    sif = Container(str(image), engine="apptainer")
    answer = subprocess.run(image_question(sif), capture_output=True, text=True, check=True).stdout
    assert read_image(sif, answer).id == "sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"
    assert not image_question(Container("docker://a/b", engine="apptainer"))  # a name alone tells no image
    assert not image_question(Container("a/b", engine="pyxis"))


@pytest.mark.parametrize("answer", ["", "[]", DIGITS[1:], f"{DIGITS} <none>@<none>", f"{DIGITS}\n{DIGITS}\n"])
def test_an_answer_of_another_shape_is_refused(answer: str) -> None:
    for engine in ("podman", "docker", "apptainer"):
        with pytest.raises(UnknownLayout, match="asked for the image a/b"):
            read_image(Container("a/b", engine=engine), answer)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"image": ""}, "'' is not a container image"),
        ({"image": "--privileged"}, "is not a container image"),
        ({"image": "@user"}, "is not a container image"),
        ({"image": "two words"}, "is not a container image"),
        ({"image": "a\x1b[2J"}, "is not a container image"),
        ({"engine": "podmann"}, "unknown container engine 'podmann'; did you mean podman"),
        ({"python": "-c"}, "python '-c' is not a command"),
        ({"shm_size": "much"}, "write 64g or 512m"),
        ({"shm_size": "64g", "engine": "apptainer"}, "shm_size is not for apptainer"),
        ({"engine_arguments": ("--x",), "engine": "pyxis"}, "engine_arguments are not for pyxis"),
        ({"arguments": ("-it",)}, "'-it' would cut off the agent"),
        ({"arguments": ("--detach",)}, "'--detach' would cut off the agent"),
        ({"arguments": ("@user",)}, "'@user' is not valid"),
        ({"arguments": ("",)}, "'' is not valid"),
        ({"mounts": ("data",)}, "'data' cannot be mounted"),
        ({"mounts": ("/a:b",)}, "'b' cannot be mounted"),
        ({"mounts": ("/a:/b:/c",)}, "too many parts"),
        ({"mounts": ("",)}, "'' cannot be mounted"),
        ({"data_dir": "data"}, "'data' cannot be mounted"),
        ({"data_dir": "/a:b"}, "':' separates paths"),
        ({"data_dir": "/a,b", "engine": "pyxis"}, "',' separates paths"),
        ({"data_dir": "/a\nb"}, "cannot be mounted"),
        ({"name": "a b"}, "cannot be a container's name"),
    ],
)
def test_bad_input_is_one_message(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as raised:
        command(**fields)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


UNKNOWN_TO_ENGINES = {
    "devices": ["dev/card", "/dev/card:/dev/other", "acme.com/card"],
    "mounts": ["opt/acme", "/opt/acme:/opt/acme"],
    "groups": ["two words"],
    "security_options": [""],
    "apptainer_options": ["@user"],
}


@pytest.mark.parametrize(("what", "word"), [(what, word) for what, all in UNKNOWN_TO_ENGINES.items() for word in all])
def test_needs_that_no_engine_can_be_told_are_the_plugins_failure(what: str, word: str) -> None:
    with pytest.raises(PluginFailed, match=r"container_needs\(\)"):
        command(ContainerNeeds(**{what: (word,)}))
