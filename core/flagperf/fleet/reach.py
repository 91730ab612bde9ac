"""The nodes of a request, with an agent on each, for as long as a command needs them; and questions to all of them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.errors import BadInput, NodeFailed, UnknownLayout, unknown_name
from flagperf.fleet.fleet import Fleet, Wrapping, open_fleet
from flagperf.plugins.installed import Plugins
from flagperf.spec.job import Job, RunSpec, check_counts
from flagperf.spec.node_facts import Fact, NodeFacts, absent_fact
from flagperf.spec.protocol import CheckAnswer, CheckRequest, DescribeRequest, RendezvousAnswer, RendezvousRequest
from flagperf.spec.user_file import read_user_file
from flagperf.spec.values import Values, parse_assignment

ADAPTER_SECONDS = 30.0
"""Time limit of an adapter's search for its cards."""

DESCRIBE_SECONDS = 60.0
"""Time limit of `describe`: longer than that of any adapter."""

MEETING_SECONDS = 60.0

CHECK_SECONDS = 3600.0
"""Time limit of `check`: hashing a large checkpoint is slow."""

IMAGE_SECONDS = 60.0

CARDS_OPTION = "gres"
"""The option of a cluster by which it is asked for cards, as a word and their number."""

SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID")
"""Tell what runs in a container that it is part of an allocation."""


@contextlib.contextmanager
def reach_nodes(spec: RunSpec, plugins: Plugins) -> Iterator[Fleet]:
    """Yield the nodes of a request; give them back at the end. Raise BadInput before any node is asked for."""
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
    """Return how the agents are put into containers, if they are. Raise BadInput for a wrong number of nodes or a wrong
    container, before any node is asked for."""
    check_counts(spec)
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

    wrap(0, ())  # raises for what is wrong with the request
    return Wrapping(container.python, wrap)


def count_nodes(spec: RunSpec, plugins: Plugins) -> int:
    """Return how many nodes the cluster's options name, for a request that does not say."""
    return plugins.num_nodes(spec.cluster, given_cluster_options(spec, plugins))


def given_cluster_options(spec: RunSpec, plugins: Plugins) -> dict[str, Any]:
    """Return the options of the user's file and of the command line. Where a scheduler has to be asked for cards and
    they do not say how, add the launcher's word for them."""
    from_file = read_user_file(spec.config).clusters.get(spec.cluster, {})
    kind = plugins.cluster(spec.cluster).options
    given = _given(from_file, spec.cluster_options, "--cluster-option", kind)
    asks_for_cards = CARDS_OPTION in kind.__struct_fields__
    if asks_for_cards and CARDS_OPTION not in given and spec.vendor is not None:
        word = plugins.launcher(plugins.vendor_word(spec.vendor)).gres_word
        return {**given, CARDS_OPTION: f"{word}:{spec.devices}"} if word else given
    return given


def _given(from_file: Values, assignments: Sequence[str], option: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the values of the user's file, with those of the command line over them. There, a text needs no quotes."""
    texts = {field.name for field in msgspec.structs.fields(kind) if field.type is str}
    given = dict(from_file)
    for text in assignments:
        name, value = parse_assignment(text, option)
        given[name] = text.partition("=")[2].strip() if name in texts else value
    return given


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
    """Return the facts with each node's image, as the engine there knows it."""
    if spec.container is None:
        return tuple(facts)
    from flagperf.fleet.containers import image_question, outputs, read_image

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

    found = []
    for index, node in enumerate(facts):
        known = {**node.environment.facts, "container": fact(0 if fleet.nodes_share_host else index)}
        environment = msgspec.structs.replace(node.environment, facts=known)
        found.append(msgspec.structs.replace(node, environment=environment))
    return tuple(found)


def describe_nodes(
    fleet: Fleet, *, vendor: str | None = None, with_memory: bool = False, requires: tuple[str, ...] = ()
) -> tuple[NodeFacts, ...]:
    """Ask every node what it is and has; with `vendor`, about the cards of that adapter alone. Nodes that share a host
    have the same facts."""
    request = DescribeRequest(ADAPTER_SECONDS, vendor, with_memory, requires)
    facts = fleet.ask_all("describe", dict.fromkeys(asked_nodes(fleet), request), NodeFacts, DESCRIBE_SECONDS).all()
    return tuple(facts * len(fleet.nodes) if fleet.nodes_share_host else facts)


def check_nodes(fleet: Fleet, request: CheckRequest) -> CheckAnswer:
    """Check the case's data on every node. Return the files of the first one, or a problem that says which nodes have
    it."""
    requests = dict.fromkeys(asked_nodes(fleet), request)
    answers = fleet.ask_all("check", requests, CheckAnswer, CHECK_SECONDS).all()
    found = {index: answer.problem for index, answer in enumerate(answers) if answer.problem}
    if not found:
        return answers[0]
    first = min(found)
    alike = len(found) - 1
    where = fleet.name(first) + (f" and {alike} more node{'s' if alike > 1 else ''}" if alike else "")
    return CheckAnswer(problem=found[first] if len(answers) == 1 else f"{where}: {found[first]}")


def with_meeting_place(job: Job, fleet: Fleet, interface: str | None) -> Job:
    """Return the job with the address and port where its ranks meet. The first node chooses them before the run."""
    place = meeting_place(fleet, interface)
    return msgspec.structs.replace(job, master_address=place.address, master_port=place.port)


def meeting_place(fleet: Fleet, interface: str | None) -> RendezvousAnswer:
    request = RendezvousRequest(fleet.nodes[0].address, interface or "")
    return fleet.ask_all("rendezvous", {0: request}, RendezvousAnswer, MEETING_SECONDS).all()[0]


def describe_machine(plugins: Plugins, with_memory: bool = False) -> NodeFacts:
    """Describe this machine, for `devices`, `env` and `vendors list`."""
    with plugins.allocation("local", 1) as allocation, open_fleet(allocation) as fleet:
        return describe_nodes(fleet, with_memory=with_memory)[0]


def asked_nodes(fleet: Fleet) -> range:
    return range(1 if fleet.nodes_share_host else len(fleet.nodes))
