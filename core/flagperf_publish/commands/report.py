"""flagperf report"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import click
import msgspec

from flagperf.bundle.curve_files import find_curve
from flagperf.bundle.imported import beside_imported
from flagperf.bundle.listing import runs_directory
from flagperf.bundle.run_record import RecordedRun
from flagperf.bundle.verify import damage_explains
from flagperf.cli.align import ADVICE, chosen_rule, complete_curve, named_curve, rule_options
from flagperf.cli.completers import complete_run
from flagperf.cli.options import common, find_run, note, published_option, runs_dir_option, warn_unless_verified
from flagperf.cli.output import echo, echo_text, show
from flagperf.errors import BadInput
from flagperf.files import cannot_write, write_atomically
from flagperf.metrics.alignment import LossCurve, loss_aligned
from flagperf.metrics.entry import Metric
from flagperf.plausibility.doubts import read_marked
from flagperf.report.run_json import to_json
from flagperf.report.screens import run_report
from flagperf.text import safe_json, visible
from flagperf_publish.export.data_files import to_csv
from flagperf_publish.pages.layouts import MAX_CHARTED, page, to_html, web_document
from flagperf_publish.pages.timeline import read_course


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "html", "json", "csv"]),
    help="Output format [default: table].",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file, not to stdout.")
@click.option("--open", "show_page", is_flag=True, help="Open the page in the browser; for --format html.")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of a page.")
@click.option("--allow-simulated", is_flag=True, help="Allow simulated runs on a page; they are marked.")
@click.option(
    "--reference",
    metavar="FILE|RUN",
    shell_complete=complete_curve,
    help="Compare the loss of every RUN with this one, as `flagperf align` does.",
)
@rule_options
@published_option
@runs_dir_option
@common
def report(
    runs: tuple[str, ...],
    form: str | None,
    out: Path | None,
    show_page: bool,
    lang: str,
    allow_simulated: bool,
    reference: str | None,
    rule_id: str | None,
    tolerance: float | None,
    published: bool | None,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Print runs for the terminal, as a result page in Markdown, as a page with charts in HTML, as JSON, or their
    measured rows as CSV.

    For the terminal, one run is a card, as `flagperf runs show` prints it, and several are a table. It fits the width
    of the terminal; in a pipe it has 200 columns, unless COLUMNS is set.

    The HTML page is one file without scripts that needs no network; its charts over time come from the raw files of the
    runs. --open shows it in the browser: the file of --out, else one in the folder for temporary files, whose path is
    printed. HTML needs `pip install 'flagperf[html]'`.

    With --reference, a loss that does not follow the reference is a result like any other (exit code 0). A run that
    cannot be compared with the reference is printed with the reason; where no run can, nothing is printed.
    """
    form = _form(form, lang, as_json)
    _check_output(form, out, show_page)
    if reference is None and (rule_id is not None or tolerance is not None):
        raise BadInput("--rule and --tolerance need a reference; add --reference")
    rule = chosen_rule(rule_id, tolerance)
    directory = runs_directory(runs_dir)
    paths = _different([find_run(run, directory) for run in runs])
    curve: LossCurve | None = None
    with damage_explains(paths):
        recorded = beside_imported(read_marked(paths), directory, published)
        if reference is not None:
            curve, name = named_curve(reference, directory), Path(reference).name
            verdicts = [loss_aligned(find_curve(path), curve, rule, curve.run or name) for path in paths]
            recorded = _with_verdicts(recorded, verdicts, reference)
        wanted = Wanted(cast(Literal["en", "zh"], lang), allow_simulated, published, curve)
        if form == "table":
            show(run_report(recorded, published=wanted.published))
        else:
            _write(_text(recorded, form, wanted), form, out, show_page)
    for path in paths:
        warn_unless_verified(path)


class Wanted(msgspec.Struct, frozen=True):
    """What a page is to have."""

    lang: Literal["en", "zh"]
    allow_simulated: bool
    published: bool | None
    reference: LossCurve | None


def _text(recorded: Sequence[RecordedRun], form: str, wanted: Wanted) -> str:
    if form == "json":
        return safe_json(to_json(recorded).decode()) + "\n"
    if form == "csv":
        return to_csv(recorded)
    if form == "md":
        return page(recorded, wanted.lang, allow_simulated=wanted.allow_simulated, published=wanted.published)
    courses = {each.run.id: read_course(Path(each.path), each.run) for each in recorded[:MAX_CHARTED]}
    return to_html(
        web_document(
            recorded,
            wanted.lang,
            courses=courses,
            reference=wanted.reference,
            allow_simulated=wanted.allow_simulated,
            published=wanted.published,
        )
    )


def _with_verdicts(runs: Sequence[RecordedRun], verdicts: Sequence[Metric], reference: str) -> list[RecordedRun]:
    if all(verdict.value is None for verdict in verdicts):
        why = [f"{each.run.id}: {_no_verdict(verdict)}" for each, verdict in zip(runs, verdicts, strict=True)]
        raise BadInput(f"cannot align with {reference}: {'; '.join(why)}; {ADVICE}")
    return [
        msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, metrics=(*each.run.metrics, verdict)))
        for each, verdict in zip(runs, verdicts, strict=True)
    ]


def _no_verdict(verdict: Metric) -> str:
    found = verdict.inputs.get("obstacles")
    return "; ".join(found) if found else f"it has no loss curve: {verdict.reason}, {verdict.detail}"


def _different(paths: list[Path]) -> list[Path]:
    """Without duplicates: a run that is named twice is one row."""
    return list({path.resolve(): path for path in paths}.values())


def _check_output(form: str, out: Path | None, show_page: bool) -> None:
    if show_page and form != "html":
        raise BadInput(f"--open shows a page in the browser, --format {form} is none; add --format html")
    if out is not None and form == "table":
        raise BadInput(
            "--out writes a page or data, and a table is for the terminal; add --format html, md, json or csv"
        )
    if form == "html" and out is None and not show_page and sys.stdout.isatty():
        raise BadInput("--format html prints a whole page; add --out page.html, or --open to look at it")


def _write(text: str, form: str, out: Path | None, show_page: bool) -> None:
    if out is None and not show_page:
        echo_text(text)
        return
    import webbrowser  # lazy: only --open needs it

    path = out or Path(tempfile.mkdtemp(prefix="flagperf-")) / "page.html"
    try:
        write_atomically(path, "\n".join(map(visible, text.split("\n"))).encode())
    except OSError as error:
        raise cannot_write(f"cannot write {path}: {error.strerror}; see --out", error) from None
    echo(f"{form}: {path}", err=True)
    if show_page and not webbrowser.open(path.absolute().as_uri()):
        note(f"no browser could be started; open {path} yourself")


def _form(asked: str | None, lang: str, as_json: bool) -> str:
    """Table, md, html, json or csv. Options that contradict each other are refused: ignoring one would mislead."""
    if as_json and asked not in (None, "json"):
        raise BadInput(f"--json and --format {asked} contradict each other; give one of them")
    form = asked or ("json" if as_json else "table")
    if lang != "en" and form not in ("md", "html"):
        raise BadInput(f"--lang {lang} is for pages, --format {form} is in English only; add --format md or html")
    return form
