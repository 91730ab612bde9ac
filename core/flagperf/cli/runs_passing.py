"""flagperf runs pack, unpack, redact, check-redaction: runs on their way to somebody else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from flagperf.cli.completers import complete_file, complete_folder, complete_run
from flagperf.cli.options import FiniteRange, common, echo_json, note, runs_dir_option
from flagperf.cli.output import echo, echo_path, shortened
from flagperf.cli.run_argument import find_run
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.store.listing import runs_directory

if TYPE_CHECKING:
    from flagperf.redact.commitments import Reference
    from flagperf.store.compression import Compression


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
    from flagperf.launch.signals import raise_on_signals
    from flagperf.store.compression import compression_of
    from flagperf.store.packing import pack as write

    directory = runs_directory(runs_dir)
    found = list({path.resolve(): path for path in (find_run(run, directory) for run in runs)}.values())
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
    from flagperf.launch.signals import raise_on_signals
    from flagperf.store.unpacking import unpack as read

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
@click.option(
    "--key",
    metavar="FILE",
    shell_complete=complete_file,
    help="Where to keep the salt and what was replaced [default: beside the original].",
)
@click.option("--also", multiple=True, metavar="TEXT", help="Replace this too, wherever it is; repeatable.")
@click.option("--no-logs", is_flag=True, help="Leave out the logs: only known names and forms are found in them.")
@click.option(
    "--relative-to",
    multiple=True,
    metavar="RUN|published:NAME|NAME=VALUE",
    shell_complete=complete_run,
    help="Leave ratios to this in place of absolute values, and no raw files; NAME=VALUE is repeatable.",
)
@runs_dir_option
@common
def redact(
    run: str,
    out: str,
    key: str | None,
    also: tuple[str, ...],
    no_logs: bool,
    relative_to: tuple[str, ...],
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Copy a run without what identifies its owner: hosts, users, addresses, serial numbers, UUIDs, paths.

    They become pseudonyms, the same in all files, so that every metric can still be recomputed. The copy has a
    commitment to each value; the salt and the values go into a key, which stays with the original. See
    docs/passing-on.md.
    """
    from flagperf.launch.signals import raise_on_signals
    from flagperf.redact.copying import Wishes
    from flagperf.redact.copying import redact as copy

    directory = runs_directory(runs_dir)
    found = find_run(run, directory)
    for word in also:
        if len(word) < 3:
            raise BadInput(f"--also {word!r} is too short to be told apart from other words; give 3 characters or more")
    reference = _reference(found, relative_to, directory) if relative_to else None
    wishes = Wishes(with_logs=not no_logs, words=also, users=_own_name(), reference=reference)
    raise_on_signals()
    made = copy(found, Path(out), wishes, None if key is None else Path(key))
    if as_json:
        echo_json(made)
        return
    note(f"replaced: {made.redaction.summary}")
    note(f"key: {made.key}; whoever has it can undo the redaction, keep it with the original")
    echo_path(Path(made.path))


def _reference(run: Path, given: tuple[str, ...], directory: Path) -> Reference:
    from flagperf.redact.ratios import published_reference, reference_run, stated_reference
    from flagperf.spec.published_names import PUBLISHED
    from flagperf.store.bundle import read_bundle

    recorded = read_bundle(run).run
    is_published = [word.startswith(PUBLISHED) for word in given]
    if not any(is_published) and all("=" in word for word in given):
        return stated_reference(recorded, given)
    if len(given) > 1:
        raise BadInput("--relative-to takes one run, one published result, or several NAME=VALUE")
    if is_published[0]:
        return published_reference(recorded.manifest, given[0].removeprefix(PUBLISHED), directory)
    return reference_run(recorded, read_bundle(find_run(given[0], directory)).run)


def _own_name() -> tuple[str, ...]:
    import getpass

    try:
        return (getpass.getuser(),)
    except (OSError, KeyError):  # nobody has this number
        return ()


@click.command("check-redaction")
@click.argument("redacted", shell_complete=complete_run)
@click.argument("original", shell_complete=complete_run)
@click.option(
    "--key", metavar="FILE", shell_complete=complete_file, help="Of the redaction [default: beside ORIGINAL]."
)
@runs_dir_option
@common
def check_redaction(redacted: str, original: str, key: str | None, runs_dir: str | None, as_json: bool) -> int:
    """Check that a redacted run was made of this original: every commitment, and every byte, made again."""
    from flagperf.redact.check import redaction_problems
    from flagperf.redact.commitments import read_key
    from flagperf.store.bundle import read_bundle

    directory = runs_directory(runs_dir)
    copy, source = find_run(redacted, directory), find_run(original, directory)
    beside = source.resolve().parent / f"{read_bundle(copy).run.id}.key.json"
    found = list(redaction_problems(copy, source, read_key(beside if key is None else Path(key))))
    if as_json:
        echo_json({"problems": found})
    else:
        for problem in found:
            echo(shortened(problem))
        verdict = (
            f"is not the redacted {source.name}" if found else f"was made of {source.name}, and shows nothing else"
        )
        echo(f"{copy.name} {verdict}")
    return 3 if found else 0
