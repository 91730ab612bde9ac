"""flagperf env"""

from __future__ import annotations

from collections import Counter

import click

from flagperf.cli.columns import echo_columns
from flagperf.cli.completers import complete_file
from flagperf.cli.options import common, echo_json
from flagperf.cli.output import echo
from flagperf.errors import MissingPart
from flagperf.plan import describe_machine, read_user_file, with_stated_environment
from flagperf.plugins.installed import load_plugins
from flagperf.spec import Fact, NodeFacts


@click.command()
@click.option(
    "--config",
    shell_complete=complete_file,
    metavar="FILE",
    help="File with an [environment] table [default: ./flagperf.toml].",
)
@click.option("--torch-constraint", is_flag=True, help="Print a pip constraint that keeps the installed torch.")
@common
def env(config: str | None, torch_constraint: bool, as_json: bool) -> None:
    """Show the environment as result pages list it: machine, cards, CPU, network, OS, kernel, driver, framework."""
    plugins = load_plugins()
    node = with_stated_environment(describe_machine(plugins), read_user_file(config))
    if torch_constraint:
        constraint = _torch_constraint(node)
        echo_json({"constraint": constraint}) if as_json else echo(constraint)
    elif as_json:
        echo_json(node)
    else:
        echo_columns(["FACT", "VALUE"], environment_rows(node))


def _torch_constraint(node: NodeFacts) -> str:
    version = node.environment.packages.get("torch")
    if version is None:
        raise MissingPart("torch is not installed; install your vendor's build of torch first")
    return f"torch=={version}"


def environment_rows(node: NodeFacts) -> list[list[str]]:
    rows = [["host", node.host], *([name, _text(fact)] for name, fact in node.environment.facts.items())]
    for vendor in node.vendors:
        if vendor.memory_scope == "device":
            models = Counter(device.model for device in vendor.devices)
            rows += [[f"cards {vendor.shown_vendor}", f"{count} x {model}"] for model, count in models.items()]
        others = {name: version for name, version in vendor.versions.items() if name != "driver"}  # a fact already
        rows += [[f"{name} {vendor.shown_vendor}", version] for name, version in others.items()]
    packages = ", ".join(f"{name} {version}" for name, version in node.environment.packages.items())
    rows.append(["packages", packages or "none that a run uses"])
    rows += [[f"${name}", value] for name, value in node.environment.variables.items()]
    return rows


def _text(fact: Fact) -> str:
    if fact.value is None:
        return f"n/a ({fact.reason})"
    return f"{fact.value} (stated)" if fact.how == "stated" else fact.value
