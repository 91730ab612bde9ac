"""flagperf runs"""

from __future__ import annotations

import click

from flagperf.cli.complete import complete_run
from flagperf.cli.options import common, echo_columns, echo_json, no_published_option, note, runs_dir_option
from flagperf.store import find_bundle, find_run, list_runs, read_bundle, runs_directory


@click.group()
def runs() -> None:
    """Bundles of past runs. RUN is a path, a unique prefix of an id, or `latest`."""


@runs.command("list")
@runs_dir_option
@common
def list_command(runs_dir: str | None, as_json: bool) -> None:
    """Every bundle, oldest first."""
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
    """One run: its ending and its main numbers; --json has all of them."""
    from flagperf.cli.terminal import show as show_document
    from flagperf.report import run_report, to_json

    recorded = read_bundle(find_run(run, runs_directory(runs_dir)))
    if as_json:
        click.echo(to_json([recorded]))
    else:
        show_document(run_report([recorded], published=not no_published))


@runs.command()
@click.argument("run", shell_complete=complete_run)
@runs_dir_option
@common
def path(run: str, runs_dir: str | None, as_json: bool) -> None:
    """Where a run's bundle is."""
    found = find_run(run, runs_directory(runs_dir))
    if as_json:
        echo_json({"path": str(found)})
    else:
        click.echo(found)


@runs.command()
@click.argument("run", shell_complete=complete_run)
@runs_dir_option
@common
def curve(run: str, runs_dir: str | None, as_json: bool) -> None:
    """Print the loss of every step as a file that `flagperf align` takes as a reference."""
    from flagperf.cli.holds import warn_unless_it_holds
    from flagperf.store import curve_of_run, curve_text

    found = find_run(run, runs_directory(runs_dir))
    losses = curve_of_run(found)
    warn_unless_it_holds(found)
    if as_json:
        echo_json(losses)
    else:
        click.echo(curve_text(losses), nl=False)


@runs.command()
@click.argument("run", shell_complete=complete_run)
@runs_dir_option
@common
def verify(run: str, runs_dir: str | None, as_json: bool) -> int:
    """Recompute every number from the raw files, and compare all files with MANIFEST."""
    from flagperf.verify import verify_bundle

    found = find_bundle(run, runs_directory(runs_dir))
    result = verify_bundle(found)
    if as_json:
        echo_json(result)
    else:
        for problem in result.problems:
            click.echo(problem)
        verdict = "does not hold" if result.problems else "holds"
        click.echo(f"{found.name}: {verdict}; {result.num_metrics} numbers recomputed, {result.num_files} files")
    return 3 if result.problems else 0
