"""Options that several commands share, and functions for their output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from flagperf.bundle import listing
from flagperf.cli.completers import (
    complete_assignment,
    complete_case,
    complete_cluster,
    complete_file,
    complete_folder,
    complete_precision,
    complete_profile,
    complete_run,
    complete_vendor,
)
from flagperf.cli.output import echo_json_text, echo_message
from flagperf.errors import BadInput, ToolFailed
from flagperf.text import flagperf_command

if TYPE_CHECKING:
    from flagperf.spec.job import RunSpec
    from flagperf.spec.node_facts import VendorFacts

F = TypeVar("F", bound=Callable[..., Any])

_QUIET = "flagperf.quiet"


class FiniteRange(click.FloatRange):
    """Click's own lets `nan` pass, which is neither below nor above a limit, and `inf` where there is no upper one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number in the range {self._describe_range()}.", param, ctx)
        return number


def common(function: F) -> F:
    """Add --json and -q, as on every command."""
    function = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")(function)
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_keep_quiet,
        help="No progress and no notes on stderr.",
    )(function)


def runs_dir_option(function: F) -> F:
    return click.option(
        "--runs-dir",
        metavar="DIR",
        shell_complete=complete_folder,
        help="Folder of the runs [default: $FLAGPERF_RUNS_DIR, else ./runs].",
    )(function)


vendor_option = click.option(
    "--vendor",
    metavar="WORD",
    shell_complete=complete_vendor,
    help="Vendor to use [default: auto-detected].",
)

config_option = click.option(
    "--config",
    metavar="FILE",
    shell_complete=complete_file,
    help="File with your values [default: ./flagperf.toml, if it exists].",
)

data_dir_option = click.option(
    "--data-dir",
    shell_complete=complete_folder,
    metavar="DIR",
    help="Folder with real data and checkpoints.",
)

_REACH = (
    click.option(
        "--cluster",
        metavar="NAME",
        default="local",
        show_default=True,
        shell_complete=complete_cluster,
        help="How to reach the nodes.",
    ),
    click.option(
        "--cluster-option",
        "cluster_options",
        metavar="NAME=VALUE",
        multiple=True,
        help="Option of the cluster, over [clusters.NAME] of flagperf.toml; repeatable.",
    ),
    click.option(
        "--hosts",
        metavar="NAMES",
        help="The same as --cluster ssh --cluster-option hosts=NAMES, for example node[01-16].",
    ),
    click.option(
        "--container",
        metavar="IMAGE",
        help="Run the agents, and so the workers, in this image on every node; needs --vendor.",
    ),
    click.option(
        "--container-option",
        "container_options",
        metavar="NAME=VALUE",
        multiple=True,
        help="engine, python, mounts and others, over [container] of flagperf.toml; repeatable.",
    ),
    click.option(
        "--interface",
        metavar="NAME",
        help="Network interface between the nodes [default: the one that reaches the first node].",
    ),
)
"""Which nodes, and how they are reached."""

_RUN_REQUEST = (
    click.argument("case", shell_complete=complete_case),
    vendor_option,
    click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Number of nodes."),
    click.option("--devices", type=click.IntRange(1), default=1, show_default=True, help="Devices per node."),
    click.option(
        "--precision",
        metavar="WORD",
        shell_complete=complete_precision,
        help="fp32, tf32, fp16, bf16, amp-fp16 or amp-bf16 [default: the case's].",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=complete_profile,
        help="Configuration of the case [default: the case's].",
    ),
    click.option(
        "--parallel",
        metavar="TPxPPyDPz",
        help="How to spread the model over the devices, for example TP4PP8DP1 [default: the case's].",
    ),
    click.option(
        "--set",
        multiple=True,
        metavar="KEY=VALUE...",
        shell_complete=complete_assignment,
        help="Change values; can be repeated.",
    ),
    config_option,
    data_dir_option,
    click.option(
        "--timeout",
        "timeout_seconds",
        type=FiniteRange(0, min_open=True),
        metavar="SECONDS",
        help="Stop the run after this time [default: never].",
    ),
    click.option(
        "--sample-seconds",
        type=FiniteRange(0, min_open=True),
        default=1.0,
        show_default=True,
        help="Interval between memory samples.",
    ),
    *_REACH,
    click.option(
        "--record-operators",
        is_flag=True,
        help="Write down every operator call of the last steps, which are then not measured.",
    ),
    click.option("--record-steps", type=int, metavar="N", help="How many steps to record [default: 3]."),
    click.option(
        "--from",
        "replay",
        metavar="RUN",
        shell_complete=complete_run,
        help="For a case of kind operators: measure the operators that this run recorded.",
    ),
    click.option(
        "--from-rank",
        "replay_rank",
        type=int,
        metavar="RANK",
        help="The rank of that run whose operators are measured [default: 0].",
    ),
    click.option("--accept-low-peaks", is_flag=True, help="Use peaks of low confidence for MFU."),
    click.option(
        "--peak-from",
        metavar="RUN",
        help="A run of gemm on the same kind of card, whose figure is the peak for MFU if the vendor's is unknown.",
    ),
)
"""The options that `run` and `plan` share. Their names are the fields of RunSpec."""


def run_spec(request: dict[str, Any], runs_dir: Path) -> RunSpec:
    """Return the request of `run` and `plan`. Runs that it names are looked up."""
    from flagperf.spec.job import RunSpec

    named = {name: request[name] for name in ("peak_from", "replay") if request[name] is not None}
    found = {name: str(find_run(word, runs_dir).absolute()) for name, word in named.items()}
    return msgspec.convert({**request, **found}, RunSpec)


def published_option(function: F) -> F:
    return click.option(
        "--published/--no-published",
        default=None,
        help="Show or leave out the published results of the case [default: only beside runs of a published profile].",
    )(function)


def run_request(function: F) -> F:
    return _with(function, _RUN_REQUEST)


def nodes_request(function: F) -> F:
    """Add the options of a command that only asks nodes. A NodesCommand has them."""
    return _with(function, (vendor_option, config_option, data_dir_option, *_REACH))


def _with(function: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


class NodesCommand(click.Command):
    """`--hosts NAMES` means `--cluster ssh --cluster-option hosts=NAMES`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        hosts = ctx.params.pop("hosts", None)
        if hosts is not None and not ctx.resilient_parsing:
            is_given = ctx.get_parameter_source("cluster") is not click.core.ParameterSource.DEFAULT
            if is_given and ctx.params["cluster"] != "ssh":
                raise BadInput(f"--hosts is an option of cluster ssh; leave out --cluster {ctx.params['cluster']}")
            if not hosts.strip():
                raise BadInput("--hosts names no host; give for example --hosts node[01-16]")
            ctx.params["cluster"] = "ssh"
            ctx.params["cluster_options"] = (*ctx.params["cluster_options"], f"hosts={hosts}")
        return rest


class RunRequestCommand(NodesCommand):
    """`--set a=1 b=2` means `--set a=1 --set b=2`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, expand_set(args))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """After the case, a word that is not an option can only be another pair."""
        pairs = [] if incomplete.startswith("-") else complete_assignment(ctx, self.params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *pairs]


def expand_set(arguments: Sequence[str]) -> list[str]:
    expanded: list[str] = []
    in_set = False
    for argument in arguments:
        is_pair = "=" in argument and not argument.startswith("-")
        if in_set and is_pair and expanded[-1] != "--set":
            expanded.append("--set")
        in_set = argument == "--set" or (in_set and is_pair)
        expanded.append(argument)
    return expanded


def echo_json(value: Any) -> None:
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise BadInput("JSON cannot have a name that is not UTF-8; leave out --json") from None
    echo_json_text(msgspec.json.format(text, indent=2))


def exit_code_of(found: Sequence[VendorFacts], broken_adapters: Sequence[str]) -> int:
    """Return 3 if an adapter failed or could not be asked: it did not say that its cards are absent, so they may be
    there."""
    has_failed = any(facts.error or facts.has_failed for facts in found)
    return ToolFailed.exit_code if broken_adapters or has_failed else 0


def note(text: str) -> None:
    """Print a line for people, on stderr."""
    if not is_quiet():
        echo_message(text)


def is_quiet() -> bool:
    return bool(click.get_current_context().meta.get(_QUIET))


def _keep_quiet(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[_QUIET] = value


# RUN of the command line: find the bundle, and say so if `latest` is not the newest.


def find_run(word: str, runs_dir: Path) -> Path:
    return listing.find_run(word, runs_dir, _tell)


def find_several(word: str, runs_dir: Path) -> list[Path]:
    """Return the bundles of a word that may stand for several runs."""
    return listing.find_runs(word, runs_dir, _tell)


def find_bundle(word: str, runs_dir: Path) -> Path:
    """Return a bundle that may be damaged and have no run.json."""
    return listing.find_bundle(word, runs_dir, _tell)


def _tell(latest: listing.Latest) -> None:
    """Say which run `latest` stands for, where a newer one has not finished."""
    newer = latest.newer
    if newer is None:
        return
    watch = f"; to look at it: {flagperf_command('runs', 'watch', newer.id)}" if newer.status == "running" else ""
    note(f"latest: {latest.path.name}, the latest that has finished; the newer {newer.id} is {newer.status}{watch}")


# Bundles that are not verified, in commands that print what a bundle says.


RECOMPUTED_BYTES = 64 << 20
"""Of a bundle with more raw files than this, which take about a second, only digests are compared."""


def warn_unless_verified(path: Path, recomputed_bytes: int = RECOMPUTED_BYTES) -> None:
    """Verify a bundle whose figures are shown, and print a warning if it is damaged or was changed."""
    from flagperf.bundle.verify import trouble_of, verify_bundle

    verification = verify_bundle(path, recomputed_bytes=recomputed_bytes)
    trouble = trouble_of(path, verification)
    if trouble:
        note(f"warning: {trouble}")
    elif not verification.recomputed:
        note(f"{path.name} is not recomputed: `{flagperf_command('runs', 'verify', path)}`")
