"""flagperf runs"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from flagperf.bundle.bundle import check_form, read_bundle
from flagperf.bundle.imported import beside_imported
from flagperf.bundle.listing import (
    STATUSES,
    MainFigure,
    Removable,
    RunLine,
    bundle_paths,
    removable,
    remove,
    run_line,
    runs_directory,
)
from flagperf.bundle.run_record import Labels, checked_note, checked_tag, read_labels, write_labels
from flagperf.cli import CommandGroup
from flagperf.cli.completers import complete_case, complete_file, complete_run, complete_status, complete_vendor
from flagperf.cli.options import common, echo_json, find_bundle, find_run, note, published_option, runs_dir_option
from flagperf.cli.output import echo, echo_columns, echo_json_text, echo_path, echo_text, shortened
from flagperf.errors import BadInput, unknown_name
from flagperf.files import exists
from flagperf.text import flagperf_command
from flagperf.units import mebibytes

if TYPE_CHECKING:
    from flagperf.plugins.installed import Plugins


@click.group(cls=CommandGroup)
def runs() -> None:
    """List, watch, show, label, remove, verify, sign and pass on runs.

    RUN is a path, a unique prefix of an id, or `latest`: the latest one that has finished.
    """


@runs.command("list")
@click.option(
    "--case", "cases", multiple=True, metavar="CASE", shell_complete=complete_case, help="Only runs of this case."
)
@click.option(
    "--vendor",
    "vendors",
    multiple=True,
    metavar="WORD",
    shell_complete=complete_vendor,
    help="Only runs on this vendor's cards.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    shell_complete=complete_status,
    help="Only runs that ended like this, or that are running, killed or unknown.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only runs with this tag.")
@runs_dir_option
@common
def list_command(
    cases: tuple[str, ...],
    vendors: tuple[str, ...],
    statuses: tuple[str, ...],
    tags: tuple[str, ...],
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """List all runs, oldest first: what was run on what, the main result, how it ended.

    Filters can be repeated: a run is listed if it has one of the words of each. A run without an ending is running
    (the command that writes it is alive), killed, or unknown where its machine cannot be seen from here. An asterisk
    after a result says that caveats apply to it; `runs show` has them.
    """
    from flagperf.plausibility.doubts import marked_line

    directory = runs_directory(runs_dir)
    if runs_dir is not None and not exists(directory):
        raise BadInput(f"--runs-dir {runs_dir} does not exist; name the folder of the runs")
    paths = bundle_paths(directory)
    all_lines = [run_line(path) for path in paths]
    path_of = dict(zip(map(id, all_lines), paths, strict=True))  # copies of a run have the same line
    found = chosen(all_lines, directory, cases, vendors, statuses, tags)
    lines = [marked_line(line, path_of[id(line)]) for line in found]
    if as_json:
        echo_json(lines)
        return
    echo_lines(lines)
    if not lines:
        note(f"none of the {len(all_lines)} runs in {directory}" if all_lines else f"no runs in {directory}")
    if any(line.status in ("killed", "unknown") for line in lines):
        note(f"`{flagperf_command('runs', 'end', 'RUN')}` ends a run whose command was killed")


@runs.command()
@click.argument("run", shell_complete=complete_run)
@published_option
@runs_dir_option
@common
def show(run: str, published: bool | None, runs_dir: str | None, as_json: bool) -> None:
    """Show one run: how it ended and its main metrics; --json has all metrics."""
    from flagperf.bundle.verify import damage_explains
    from flagperf.cli.output import show as show_document
    from flagperf.plausibility.doubts import read_marked
    from flagperf.report.run_json import to_json
    from flagperf.report.screens import run_report

    directory = runs_directory(runs_dir)
    found = find_run(run, directory)
    with damage_explains([found]):
        recorded = beside_imported(read_marked([found]), directory, published)
        if as_json:
            echo_json_text(to_json(recorded))
        else:
            show_document(run_report(recorded, published=published))


@runs.command()
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--once", is_flag=True, help="Print the current state and exit.")
@runs_dir_option
@common
def watch(run: str | None, once: bool, runs_dir: str | None, as_json: bool) -> int:
    """Show a running benchmark live, from any terminal: ranks, step time, loss, memory and power of each device.

    RUN defaults to the run that is running. The screen is refreshed every second; q or Ctrl-C leaves it, and the run
    goes on. Without a terminal, a line is printed every few seconds. --json prints the current state and exits. The
    exit code is that of the run once it is over (3 if it was killed), and 0 if you leave before that.
    """
    from flagperf.cli.watch import running_run
    from flagperf.cli.watch import watch as follow

    directory = runs_directory(runs_dir)
    found = running_run(directory) if run is None else find_run(run, directory)
    return follow(found, once=once, as_json=as_json)


@runs.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also if it cannot be seen from here whether a run is running.")
@runs_dir_option
@common
def rm(runs: tuple[str, ...], yes: bool, force: bool, runs_dir: str | None, as_json: bool) -> None:
    """Remove runs for good: all that are named, or none. A run that is running is never removed."""
    directory = runs_directory(runs_dir)
    found = {bundle.path: bundle for bundle in (removable(find_bundle(word, directory), force=force) for word in runs)}
    bundles = list(found.values())
    if not yes and not _is_agreed(bundles):
        note("nothing was removed")
        return
    remove(bundles)
    if as_json:
        echo_json([{"id": each.line.id, "path": str(each.path), "bytes": each.num_bytes} for each in bundles])
    else:
        for each in bundles:
            echo(f"removed {each.path}")


def _is_agreed(bundles: Sequence[Removable]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        names = ", ".join(each.line.id for each in bundles)
        raise BadInput(f"removing {names} needs your consent, and there is no terminal to ask on; give --yes")
    rows = [[str(each.path), each.line.status, mebibytes(each.num_bytes)] for each in bundles]
    echo_columns(["RUN", "STATUS", "SIZE"], rows)
    many = f"these {len(bundles)} runs" if len(bundles) > 1 else "this run"
    return click.confirm(f"Remove {many} for good?", err=True)


@runs.command()
@click.argument("run", shell_complete=complete_run)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@click.option("--remove", is_flag=True, help="Remove these tags.")
@runs_dir_option
@common
def tag(run: str, tags: tuple[str, ...], remove: bool, runs_dir: str | None, as_json: bool) -> None:
    """Give a run tags, which `runs list --tag` finds. The run still verifies."""
    found, words = find_run(run, runs_directory(runs_dir)), [*map(checked_tag, tags)]
    labels = read_labels(found)
    for word in words:
        if remove and word not in labels.tags:
            raise unknown_name("tag", word, labels.tags, f"(of {found.name})")
    kept = [word for word in labels.tags if word not in words]
    _label(
        found, msgspec.structs.replace(labels, tags=tuple(kept if remove else [*kept, *dict.fromkeys(words)])), as_json
    )


@runs.command("note")
@click.argument("run", shell_complete=complete_run)
@click.argument("text")
@runs_dir_option
@common
def note_command(run: str, text: str, runs_dir: str | None, as_json: bool) -> None:
    """Set the note of a run; an empty TEXT removes it. The run still verifies."""
    found = find_run(run, runs_directory(runs_dir))
    _label(found, msgspec.structs.replace(read_labels(found), note=checked_note(text)), as_json)


def _label(bundle: Path, labels: Labels, as_json: bool) -> None:
    write_labels(bundle, labels)
    if as_json:
        echo_json(labels)
    else:
        echo(f"{bundle.name}: {', '.join(labels.tags) or 'no tags'}; {labels.note or 'no note'}")


@runs.command()
@click.argument("job")
@runs_dir_option
def attach(job: str, runs_dir: str | None) -> int:
    """Follow a run that was started with --detach until it ends, and exit with its exit code. Ctrl-C leaves it running.

    If the cluster ended the job without a word from the command, as when a node failed, the run is ended here.
    """
    from flagperf.cli.queue import attach as follow

    return follow(job, runs_directory(runs_dir))


@runs.command()
@click.argument("job")
@runs_dir_option
@common
def cancel(job: str, runs_dir: str | None, as_json: bool) -> None:
    """End a run that was started with --detach. What it has measured is kept."""
    from flagperf.cli.queue import cancel as end_job

    submitted = end_job(job, runs_directory(runs_dir))
    if as_json:
        echo_json(submitted)
    else:
        echo(f"job {submitted.job} of cluster {submitted.cluster} is told to end")


@runs.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--gone", is_flag=True, help="You know that its command is gone, where that cannot be seen from here.")
@runs_dir_option
@common
def end(run: str, gone: bool, runs_dir: str | None, as_json: bool) -> None:
    """Mark a run whose command was killed as failed, and keep its data. Refuse a run that is still active."""
    from flagperf.run import check_gone, end_abandoned, has_ended

    found = find_run(run, runs_directory(runs_dir))
    is_ended = has_ended(found)
    if is_ended:
        note(f"{found.name} has ended before; it is left as it is")
    elif not gone:
        check_gone(found)
    recorded = read_bundle(found) if is_ended else end_abandoned(found, said_gone=gone)
    ending = recorded.run.ending if recorded is not None else None
    if as_json:
        echo_json({"run": found.name, "ending": ending})
    elif ending is None:
        echo(f"{found.name}: no run had begun; the folder was removed")
    else:
        echo(f"{found.name}: {ending.status}{f': {ending.reason}' if ending.reason else ''}")


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
    from flagperf.bundle.curve_files import curve_of_run, curve_text
    from flagperf.bundle.verify import damage_explains
    from flagperf.cli.options import warn_unless_verified

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
    from flagperf.bundle.verify import verify_bundle

    found = find_bundle(run, runs_directory(runs_dir))
    check_form(found)
    result = verify_bundle(found, None if signers is None else Path(signers))
    if as_json:
        echo_json(result)
    else:
        for line in (*result.problems, *result.notes):
            echo(shortened(line))
        if result.signer:
            echo(f"signed by {result.signer}")
        found_problems = f"{len(result.problems)} problems" if len(result.problems) > 1 else "1 problem"
        verified = "verified as far as a redacted run can be" if result.redacted else "verified"
        verdict = f"not verified: {found_problems}; " if result.problems else f"{verified}: "
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
    from flagperf.bundle.signature import sign_bundle, usual_key
    from flagperf.bundle.verify import verify_bundle

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


# `flagperf runs list`: which runs, and how a line of them reads.


NOTE_CHARACTERS = 40


def chosen(
    lines: Sequence[RunLine],
    runs_dir: Path,
    cases: Sequence[str],
    vendors: Sequence[str],
    statuses: Sequence[str],
    tags: Sequence[str],
) -> list[RunLine]:
    """Return the runs that have one of the words of every filter. Raise BadInput for a word that nothing has."""
    where = f"(in {runs_dir})"
    _check("case", cases, [line.case for line in lines], where, lambda plugins: plugins.cases())
    _check(
        "vendor",
        vendors,
        [line.vendor for line in lines],
        where,
        lambda plugins: (each.value.vendor for each in plugins.device_backends()),
    )
    _check("status", statuses, STATUSES, "")
    _check("tag", tags, [tag for line in lines for tag in line.tags], where)
    return [
        line
        for line in lines
        if (not cases or line.case in cases)
        and (not vendors or line.vendor in vendors)
        and (not statuses or line.status in statuses)
        and (not tags or set(tags) & set(line.tags))
    ]


def _check(
    kind: str,
    words: Sequence[str],
    present: Iterable[str],
    where: str,
    installed: Callable[[Plugins], Iterable[str]] = lambda _plugins: (),
) -> None:
    """Raise BadInput for an unknown word. One that no run has may still be installed: then there are no such runs."""
    found = set(present)
    missing = [word for word in words if word not in found]
    if not missing:
        return
    from flagperf.plugins.installed import load_plugins  # not at the top: few lists need it

    known = {*filter(None, found), *installed(load_plugins())}
    for word in missing:
        if word not in known:
            raise unknown_name(kind, word, known, where)


def echo_lines(lines: Sequence[RunLine]) -> None:
    """Print runs as a table, with tags and notes if there are any, and then what is wrong with some of them."""
    heads = ["RUN", "CASE", "VENDOR", "DEVICE", "SHAPE", "PROFILE", "PRECISION", "RESULT", "STATUS"]
    rows, notes = [], []
    for line in lines:
        vendor = f"{line.vendor} (simulated)" if line.simulated else line.vendor
        result = _result(line.headline[0]) if line.headline else ""
        where = f" (on {line.host})" if line.status == "unknown" and line.host else ""
        status = f"{line.status}{where}{' (redacted)' if line.redacted else ''}"
        rows.append([line.id, line.case, vendor, line.device, line.shape, line.profile, line.precision, result, status])
        first, *more = line.note.split("\n")
        is_long = more or len(first) > NOTE_CHARACTERS
        notes.append(f"{first[: NOTE_CHARACTERS - 3]}..." if is_long else first)
    for head, texts in (("TAGS", [",".join(line.tags) for line in lines]), ("NOTE", notes)):
        if any(texts):
            heads.append(head)
            rows = [[*row, text] for row, text in zip(rows, texts, strict=True)]
    echo_columns(heads, rows)
    for line in lines:
        if line.problem:
            note(f"{line.id}: {line.problem}")


def _result(headline: MainFigure) -> str:
    """Return a figure as everywhere. Its marks are in the report; here, an asterisk says that there are some."""
    from flagperf import units
    from flagperf.metrics.registry import ENTRIES  # not at the top: --json has no use for it

    entry = ENTRIES.get(headline.name)
    text = (entry.format if entry else units.four_digits)(headline.value)
    unit = (entry.shown_unit if entry else "") or headline.unit
    shown = text if text.endswith("%") or unit == "share" else f"{text} {unit}"
    return f"{headline.name} {shown}{'*' if headline.marks else ''}"
