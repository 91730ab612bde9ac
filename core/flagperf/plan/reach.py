"""reach_nodes: the nodes of a request, with an agent on each, for as long as a command needs them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.errors import BadInput, NodeFailed, UnknownLayout, unknown_name
from flagperf.fleet import Fleet, Wrapping, open_fleet
from flagperf.plan.userfile import read_user_file
from flagperf.plugins.installed import Plugins
from flagperf.spec import Fact, NodeFacts, RunSpec, Values, absent_fact, check_counts, parse_assignment

IMAGE_SECONDS = 60.0

CARDS_OPTION = "gres"
"""The option of a cluster by which it is asked for cards, as a word and their number."""

SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID")
"""That a container is part of an allocation is not known inside otherwise."""


@contextlib.contextmanager
def reach_nodes(spec: RunSpec, plugins: Plugins) -> Iterator[Fleet]:
    wrapping = check_reach(spec, plugins)
    with (
        plugins.allocation(spec.cluster, spec.nodes, given_cluster_options(spec, plugins)) as allocation,
        open_fleet(allocation, wrapping) as fleet,
    ):
        if spec.interface is not None and fleet.nodes_share_host:
            raise BadInput(
                f"--interface {spec.interface}: the nodes of cluster {spec.cluster} are this machine, whose ranks "
                "meet on the loopback interface; leave it out, or choose another --cluster"
            )
        yield fleet


def check_reach(spec: RunSpec, plugins: Plugins) -> Wrapping | None:
    """Raises BadInput for what is wrong with the number of nodes or the container, before nodes are asked for."""
    check_counts(spec)
    return _wrapping(spec, plugins)


def count_nodes(spec: RunSpec, plugins: Plugins) -> int:
    """How many the cluster's options name, for a request that does not say."""
    return plugins.num_nodes(spec.cluster, given_cluster_options(spec, plugins))


def given_cluster_options(spec: RunSpec, plugins: Plugins) -> dict[str, Any]:
    """Where a scheduler has to be asked for cards and the user does not say how, the launcher knows the word."""
    from_file = read_user_file(spec.config).clusters.get(spec.cluster, {})
    kind = plugins.cluster(spec.cluster).options
    given = _given(from_file, spec.cluster_options, "--cluster-option", kind)
    asks_for_cards = CARDS_OPTION in kind.__struct_fields__
    if asks_for_cards and CARDS_OPTION not in given and spec.vendor is not None:
        word = plugins.launcher(plugins.vendor_word(spec.vendor)).gres_word
        return {**given, CARDS_OPTION: f"{word}:{spec.devices}"} if word else given
    return given


def _given(from_file: Values, assignments: Sequence[str], option: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The user's file, and the command line over it. There, an option that is a text takes every value as it is."""
    texts = {field.name for field in msgspec.structs.fields(kind) if field.type is str}
    given = dict(from_file)
    for text in assignments:
        name, value = parse_assignment(text, option)
        given[name] = text.partition("=")[2].strip() if name in texts else value
    return given


# --- containers -----------------------------------------------------------------------------------------------------


def _wrapping(spec: RunSpec, plugins: Plugins) -> Wrapping | None:
    if spec.container is None:
        if spec.container_options:
            raise BadInput("--container-option needs --container IMAGE")
        return None
    if spec.vendor is None:
        raise BadInput("--container needs --vendor: what a container is given of the host depends on the cards")
    from flagperf.fleet.containers import container_command  # lazy: most runs have none

    container = _container(spec)
    own_engines = plugins.cluster(spec.cluster).container_options
    if container.engine == "pyxis" and "pyxis" not in own_engines:
        raise BadInput(f"container engine pyxis is an option of srun; cluster {spec.cluster!r} has none such")
    vendor = plugins.vendor_word(spec.vendor)
    needs = plugins.launcher(vendor).container_needs()
    variables = (*plugins.provided_backend(vendor).value.visibility_variables, *SCHEDULER_VARIABLES)
    data_dir = str(Path(spec.data_dir).absolute()) if spec.data_dir else None
    token = secrets.token_hex(4)

    def wrap(index: int, command: Sequence[str]) -> list[str]:
        name = f"flagperf-{token}-{index}"
        return container_command(container, needs, data_dir, command, name=name, variables=variables)

    wrap(0, ())  # what is wrong with the request is said before anything is asked for
    return Wrapping(container.python, wrap)


def _container(spec: RunSpec) -> Any:
    from flagperf.fleet.containers import ENGINES, Container

    given = _given(read_user_file(spec.config).container, spec.container_options, "--container-option", Container)
    known = [name for name in Container.__struct_fields__ if name != "image"]
    for name in given:
        if name not in known:
            raise unknown_name("option of containers", name, known)
    if given.get("engine", ENGINES[0]) not in ENGINES:
        raise unknown_name("container engine", str(given["engine"]), ENGINES)
    try:
        return msgspec.convert({**given, "image": spec.container}, Container, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"options of containers: {error}") from None


def with_image(facts: Sequence[NodeFacts], spec: RunSpec, fleet: Fleet) -> tuple[NodeFacts, ...]:
    """What image it was, as each node's engine knows it."""
    if spec.container is None:
        return tuple(facts)
    from flagperf.fleet.containers import image_question, read_image
    from flagperf.fleet.outputs import outputs

    container = _container(spec)
    question = image_question(container)
    answers = outputs(fleet, question, IMAGE_SECONDS) if question else {}
    named = f"{container.engine} {container.image}"

    def fact(index: int) -> Fact:
        answer = answers.get(index)
        if answer is None or isinstance(answer, NodeFailed):
            return Fact(f"{named} (its digest is not known: {answer or 'the engine cannot tell'})")
        try:
            image = read_image(container, answer)
        except UnknownLayout:
            return absent_fact("environment.image_unreadable", image=named)
        return Fact(" ".join([named, image.id, *image.digests]))

    found = [fact(0 if fleet.nodes_share_host else index) for index in range(len(facts))]
    return tuple(_with_fact(node, each) for node, each in zip(facts, found, strict=True))


def _with_fact(node: NodeFacts, fact: Fact) -> NodeFacts:
    environment = msgspec.structs.replace(node.environment, facts={**node.environment.facts, "container": fact})
    return msgspec.structs.replace(node, environment=environment)
