"""flagperf runs pack, unpack, redact: passing runs on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from flagperf.bundle.listing import runs_directory
from flagperf.cli.completers import complete_file, complete_folder, complete_run
from flagperf.cli.options import FiniteRange, common, echo_json, find_run, note, runs_dir_option
from flagperf.cli.output import echo_path
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf_publish.commands.asked import distinct

if TYPE_CHECKING:
    from flagperf_publish.passing.archives import Compression


MOST_GIB = 1 << 30
"""Far above any disk."""


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    shell_complete=complete_file,
    help="The archive to write: .tar.gz, .tgz, .tar.zst or .tzst [default for one run: its id and .tar.gz].",
)
@click.option(
    "--compression",
    type=click.Choice(["gzip", "zstd"]),
    help="Whatever the file is called [default: by its name]. zstd needs Python 3.14 or flagperf[zstd].",
)
@click.option("--no-labels", is_flag=True, help="Leave out tags and notes (labels.json).")
@click.option("--unfinished", is_flag=True, help="Also a run that has not ended: nobody can check what arrives.")
@runs_dir_option
@common
def pack(
    runs: tuple[str, ...],
    out: str | None,
    compression: str | None,
    no_labels: bool,
    unfinished: bool,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Pack runs into one archive, to pass them on. The same runs give the same bytes."""
    from flagperf.fleet.signals import raise_on_signals
    from flagperf_publish.passing.archives import compression_of
    from flagperf_publish.passing.archives import pack as write

    directory = runs_directory(runs_dir)
    found = distinct(find_run(run, directory) for run in runs)
    if out is None and len(found) > 1:
        raise BadInput("several runs need a name for their archive; give one with -o, for example -o runs.tar.gz")
    asked = cast("Compression | None", compression)
    suffix = ".tar.zst" if asked == "zstd" else ".tar.gz"
    archive = Path(f"{found[0].resolve().name}{suffix}" if out is None else out)
    if is_folder(archive):
        raise BadInput(f"{archive} is a folder; name a file in it, for example -o {archive / 'runs.tar.gz'}")
    raise_on_signals()
    write(found, archive, compression_of(archive, asked), labels=not no_labels, unfinished=unfinished)
    if as_json:
        echo_json({"archive": str(archive), "runs": len(found), "bytes": archive.stat().st_size})
    else:
        echo_path(archive)


@click.command()
@click.argument("archive", metavar="FILE", shell_complete=complete_file)
@click.option(
    "--max-gib",
    type=FiniteRange(0, MOST_GIB, min_open=True),
    metavar="GIB",
    help="Most content to unpack [default: 64, and no more than 250 times the archive's size above 64 MiB].",
)
@click.option("--unfinished", is_flag=True, help="Also a run without MANIFEST: nothing shows that it is whole.")
@runs_dir_option
@common
def unpack(archive: str, max_gib: float | None, unfinished: bool, runs_dir: str | None, as_json: bool) -> None:
    """Unpack runs of an archive into the folder of the runs, after a check against their MANIFEST.

    All runs of the archive, or none: one that is there with other content, a file that no bundle has, a link, a file
    that differs from its MANIFEST, and more content than the limit are refused. A run that is there with the same
    content is left as it is.
    """
    from flagperf.fleet.signals import raise_on_signals
    from flagperf_publish.passing.archives import unpack as read

    raise_on_signals()
    max_bytes = None if max_gib is None else int(max_gib * (1 << 30))
    found = read(Path(archive), runs_directory(runs_dir), max_bytes=max_bytes, unfinished=unfinished)
    if as_json:
        echo_json(found)
        return
    for run in found:
        if run.state == "already there":
            note(f"{run.id} was already there, with the same content")
        elif not run.finished:
            note(f"{run.id} was never finished: nothing shows that it is whole")
        echo_path(Path(run.path))


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option(
    "--out", required=True, metavar="DIR", shell_complete=complete_folder, help="Folder of runs that gets the copy."
)
@click.option("--also", multiple=True, metavar="TEXT", help="Replace this too, wherever it is; repeatable.")
@click.option("--no-logs", is_flag=True, help="Leave out the logs: only known names and forms are found in them.")
@runs_dir_option
@common
def redact(run: str, out: str, also: tuple[str, ...], no_logs: bool, runs_dir: str | None, as_json: bool) -> None:
    """Copy a run without what identifies its owner: hosts, users, addresses, serial numbers, UUIDs, paths.

    They become pseudonyms, the same in all files, so that every metric can still be recomputed. See
    docs/passing-on.md.
    """
    import getpass

    from flagperf.fleet.signals import raise_on_signals
    from flagperf_publish.passing.redact import Wishes
    from flagperf_publish.passing.redact import redact as copy

    found = find_run(run, runs_directory(runs_dir))
    for word in also:
        if len(word) < 3:
            raise BadInput(f"--also {word!r} is too short to be told apart from other words; give 3 characters or more")
    try:
        users: tuple[str, ...] = (getpass.getuser(),)
    except (OSError, KeyError):  # nobody has this number
        users = ()
    raise_on_signals()
    made = copy(found, Path(out), Wishes(with_logs=not no_logs, words=also, users=users))
    if as_json:
        echo_json(made)
        return
    note(f"replaced: {made.redaction.summary}")
    echo_path(Path(made.path))
