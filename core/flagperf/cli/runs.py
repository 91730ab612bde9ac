"""flagperf runs"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flagperf.cli.columns import echo_columns
from flagperf.cli.completers import complete_file, complete_run
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_json, no_published_option, note, runs_dir_option
from flagperf.cli.output import echo, echo_json_text, echo_path, echo_text, shortened
from flagperf.errors import BadInput
from flagperf.store.bundle import read_bundle
from flagperf.store.listing import find_bundle, find_run, list_runs, runs_directory


@click.group(cls=CommandGroup)
def runs() -> None:
    """List, show, verify and sign recorded runs. RUN is a path, a unique prefix of an id, or `latest`."""


@runs.command("list")
@runs_dir_option
@common
def list_command(runs_dir: str | None, as_json: bool) -> None:
    """List all runs, oldest first."""
    directory = runs_directory(runs_dir)
    lines = list_runs(directory)
    if as_json:
        echo_json(lines)
        return
    echo_columns(
        ["RUN", "STARTED", "VENDOR", "PROFILE", "STATUS"],
        [[line.id, line.created, line.vendor, line.profile, line.status] for line in lines],
    )
    if not lines:
        note(f"no runs in {directory}")


@runs.command()
@click.argument("run", shell_complete=complete_run)
@no_published_option
@runs_dir_option
@common
def show(run: str, no_published: bool, runs_dir: str | None, as_json: bool) -> None:
    """Show one run: how it ended and its main metrics; --json has all metrics."""
    from flagperf.cli.terminal import show as show_document
    from flagperf.cli.verified import damage_explains
    from flagperf.report import run_report, to_json

    found = find_run(run, runs_directory(runs_dir))
    with damage_explains([found]):
        recorded = read_bundle(found)
        if as_json:
            echo_json_text(to_json([recorded]))
        else:
            show_document(run_report([recorded], published=not no_published))


@runs.command()
@click.argument("job")
@runs_dir_option
def attach(job: str, runs_dir: str | None) -> int:
    """Follow a run that was started with --detach, until it ends; with its exit code. Ctrl-C leaves it running."""
    from flagperf.cli.detached import attach as follow

    return follow(job, runs_directory(runs_dir))


@runs.command()
@click.argument("job")
@runs_dir_option
@common
def cancel(job: str, runs_dir: str | None, as_json: bool) -> None:
    """End a run that was started with --detach. What it has measured is kept."""
    from flagperf.cli.detached import cancel as end

    submitted = end(job, runs_directory(runs_dir))
    if as_json:
        echo_json(submitted)
    else:
        echo(f"job {submitted.job} of cluster {submitted.cluster} is told to end")


@runs.command()
@click.argument("run", shell_complete=complete_run)
@runs_dir_option
@common
def path(run: str, runs_dir: str | None, as_json: bool) -> None:
    """Print the path of a run's bundle."""
    found = find_run(run, runs_directory(runs_dir))
    if as_json:
        echo_json({"path": str(found)})
    else:
        echo_path(found)


@runs.command()
@click.argument("run", shell_complete=complete_run)
@runs_dir_option
@common
def curve(run: str, runs_dir: str | None, as_json: bool) -> None:
    """Print the loss of every step as a file that `flagperf align` takes as a reference."""
    from flagperf.cli.verified import damage_explains, warn_unless_verified
    from flagperf.store.curves import curve_of_run, curve_text

    found = find_run(run, runs_directory(runs_dir))
    with damage_explains([found]):
        losses = curve_of_run(found)
    warn_unless_verified(found)
    if as_json:
        echo_json(losses)
    else:
        echo_text(curve_text(losses))


@runs.command()
@click.argument("run", shell_complete=complete_run)
@click.option(
    "--signers",
    metavar="FILE",
    shell_complete=complete_file,
    help="Also check that one of these signed it: a file of allowed signers, see ssh-keygen(1).",
)
@runs_dir_option
@common
def verify(run: str, signers: str | None, runs_dir: str | None, as_json: bool) -> int:
    """Recompute every metric from the raw files, and compare all files with MANIFEST and the parent's record."""
    from flagperf.verify import verify_bundle

    found = find_bundle(run, runs_directory(runs_dir))
    result = verify_bundle(found, None if signers is None else Path(signers))
    if as_json:
        echo_json(result)
    else:
        for line in (*result.problems, *result.notes):
            echo(shortened(line))
        if result.signer:
            echo(f"signed by {result.signer}")
        found_problems = f"{len(result.problems)} problems" if len(result.problems) > 1 else "1 problem"
        verdict = f"not verified: {found_problems}; " if result.problems else "verified: "
        echo(f"{found.name}: {verdict}{result.num_metrics} metrics recomputed, {result.num_files} files")
    return 3 if result.problems else 0


@runs.command()
@click.argument("run", shell_complete=complete_run)
@click.option(
    "--key",
    metavar="FILE",
    shell_complete=complete_file,
    help="Your ssh key; the agent is used where it has it [default: the usual one in ~/.ssh].",
)
@runs_dir_option
@common
def sign(run: str, key: str | None, runs_dir: str | None, as_json: bool) -> None:
    """Sign a verified run with your ssh key: MANIFEST.sig, which `runs verify --signers FILE` checks."""
    from flagperf.store.signature import sign_bundle, usual_key
    from flagperf.verify import verify_bundle

    found = find_run(run, runs_directory(runs_dir))
    problems = verify_bundle(found).problems
    if problems:
        raise BadInput(f"{found.name} is not verified, so it is not signed: {problems[0]}")
    may_ask = sys.stdin.isatty() and sys.stderr.isatty()
    signature = sign_bundle(found, usual_key() if key is None else Path(key), may_ask=may_ask)
    if as_json:
        echo_json({"signature": str(signature)})
    else:
        echo_path(signature)
