"""flagperf export"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flagperf.bundle.listing import bundle_paths, runs_directory
from flagperf.cli import CommandGroup
from flagperf.cli.completers import complete_file, complete_run
from flagperf.cli.options import common, echo_json, find_run, note, runs_dir_option
from flagperf.cli.output import echo, echo_text
from flagperf.errors import BadInput
from flagperf.files import cannot_write, replacing
from flagperf_publish.commands.asked import distinct

if TYPE_CHECKING:
    from flagperf_publish.export.run_lines import Exported

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def export() -> None:
    """Export runs for other programs, unrounded. Without RUN, all runs of the folder. See docs/export.md."""


def _selection(function: F) -> F:
    options = (
        click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run),
        click.option("--verified-only", is_flag=True, help="Leave out runs that `runs verify` finds a problem in."),
        runs_dir_option,
        common,
    )
    for option in reversed(options):
        function = option(function)
    return function


def _out_option(function: F) -> F:
    return click.option(
        "--out", metavar="FILE", shell_complete=complete_file, help="Write this file, at once [default: stdout]."
    )(function)


_curves_option = click.option("--curves", is_flag=True, help="A line for each step (loss, times) in place of each run.")


@export.command("csv")
@_curves_option
@_out_option
@_selection
def csv_command(**asked: Any) -> None:
    """Print a table as CSV: a line for each run with every metric, or for each step."""
    _export_table("csv", **asked)


@export.command()
@_curves_option
@_out_option
@_selection
def jsonl(**asked: Any) -> None:
    """Print JSON lines: a run each, as in `report --format json`, or a step each."""
    _export_table("jsonl", **asked)


@export.command()
@_curves_option
@_out_option
@_selection
def parquet(**asked: Any) -> None:
    """Write the table of CSV as Parquet; needs --out, and pyarrow: flagperf[parquet]."""
    from flagperf_publish.export.run_lines import check_parquet

    if asked["out"] is None:
        raise BadInput("Parquet is not for a terminal or a pipe; give --out FILE")
    check_parquet()
    _export_table("parquet", **asked)


@export.command()
@click.option("--tracking-uri", required=True, metavar="URI", help="The server, for example http://localhost:5000.")
@click.option(
    "--experiment", default="flagperf", show_default=True, metavar="NAME", help="It is created if it does not exist."
)
@_selection
def mlflow(
    runs: tuple[str, ...],
    tracking_uri: str,
    experiment: str,
    verified_only: bool,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Send finished runs to an MLflow server: parameters, metrics, curves and the bundle; needs flagperf[mlflow].

    A run that is there already, by its id and the hash of its MANIFEST, is left as it is.
    """
    from flagperf_publish.export.mlflow_export import Tracking, check_place

    check_place(tracking_uri, experiment)
    directory = runs_directory(runs_dir)
    found = []
    for each in _exported(runs, directory, verified_only):
        if runs or each.is_finished:
            found.append(each)
        else:
            note(f"{each.run.id} is not finished, and is left out")
    if not found:
        raise BadInput(f"there is no finished run in {directory} to export")
    unfinished = ", ".join(each.run.id for each in found if not each.is_finished)
    if unfinished:
        raise BadInput(f"not finished: {unfinished}; leave that out until it has ended; nothing was sent")
    server = Tracking(tracking_uri, experiment)
    tracked = []
    for each in found:
        tracked.append(server.export(each))
        if not as_json:
            echo(f"{tracked[-1].run}: {tracked[-1].state} as {tracked[-1].mlflow_run}")
    if as_json:
        echo_json(tracked)


# --- tables ---------------------------------------------------------------------------------------------------------


def _export_table(
    form: str,
    runs: tuple[str, ...],
    curves: bool,
    out: str | None,
    verified_only: bool,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    from flagperf_publish.export import run_lines as tables

    if as_json and out is None:
        raise BadInput("--json says what was written to a file; give --out FILE, or leave out --json")
    exported = _exported(runs, runs_directory(runs_dir), verified_only)
    columns, lines = tables.CURVE_COLUMNS, _step_lines(exported)
    if not curves and form == "jsonl":
        lines = map(tables.whole_run, exported)
    elif not curves:
        of_runs = list(tables.run_lines(exported))  # all of them: some cases have metrics of their own
        columns, lines = tables.run_columns(of_runs), iter(of_runs)
    pieces = tables.to_json_lines(lines) if form == "jsonl" else tables.to_csv(columns, lines)
    if out is None:
        for piece in pieces:
            echo_text(piece)
        return
    try:
        with replacing(Path(out)) as file:  # as a whole, or as it was before: a collector may read it at any moment
            if form == "parquet":
                tables.write_parquet(file, columns, lines)
            else:
                file.writelines(piece.encode() for piece in pieces)
    except OSError as error:
        raise cannot_write(f"cannot write {out}: {error.strerror}; see --out", error) from None
    if as_json:
        echo_json({"out": out, "bytes": Path(out).stat().st_size})
    else:
        note(f"written: {out}")


def _step_lines(exported: Iterable[Exported]) -> Iterator[Mapping[str, Any]]:
    from flagperf_publish.export.run_lines import curve_lines, no_curve

    for each in exported:
        num_lines = 0
        for line in curve_lines(each):
            yield line
            num_lines += 1
        if not num_lines:
            note(f"{each.run.id} has no steps to export: {no_curve(each)}")


# --- runs -----------------------------------------------------------------------------------------------------------


def _exported(words: Sequence[str], directory: Path, verified_only: bool) -> Iterator[Exported]:
    """Read the runs that are named, else all that can be read. One that is named and cannot be read is an error."""
    from flagperf.bundle.verify import damage_explains, verify_bundle
    from flagperf_publish.export.run_lines import read_exported

    paths = distinct(find_run(word, directory) for word in words) or bundle_paths(directory)
    for path in paths or [find_run("latest", directory)]:  # which says that there are none
        if verified_only and (problems := verify_bundle(path).problems):
            note(f"{path.name} is not verified, and is left out: {problems[0]}")
            continue
        try:
            with damage_explains([path]):
                yield read_exported(path)
        except BadInput as error:
            if words:
                raise
            note(f"{path.name} is left out: {error}")
