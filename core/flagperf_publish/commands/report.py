"""flagperf report"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click
import msgspec

from flagperf.bundle.curve_files import find_curve
from flagperf.bundle.imported import beside_imported
from flagperf.bundle.listing import runs_directory
from flagperf.bundle.run_record import RecordedRun
from flagperf.bundle.verify import damage_explains
from flagperf.cli.align import ADVICE, chosen_rule, complete_curve, named_curve, rule_options
from flagperf.cli.completers import complete_run
from flagperf.cli.options import common, find_run, published_option, runs_dir_option, warn_unless_verified
from flagperf.cli.output import echo, echo_text, show
from flagperf.errors import BadInput
from flagperf.files import cannot_write, write_atomically
from flagperf.messages import Lang
from flagperf.metrics.alignment import LossCurve, loss_aligned
from flagperf.metrics.entry import Metric
from flagperf.plausibility.doubts import read_marked
from flagperf.text import safe_json, visible
from flagperf_publish.commands.asked import distinct, form_of, open_page
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

    One run prints a summary, as `flagperf runs show` does; several print a table. Output fits the terminal, and has
    200 columns in a pipe, unless COLUMNS is set.

    The HTML page is one file without scripts that needs no network; its charts over time come from the raw files of the
    runs. --open shows it in the browser: the file of --out, else one in the folder for temporary files, whose path is
    printed. HTML needs `pip install 'flagperf[html]'`.

    With --reference, a loss that does not follow the reference is a result like any other (exit code 0). A run that
    cannot be compared with the reference is printed with the reason; where no run can, nothing is printed.
    """
    form = form_of(form, lang, as_json, "table", ("md", "html"))
    if show_page and form != "html":
        raise BadInput("--open needs --format html")
    if out is not None and form == "table":
        raise BadInput(
            "--out writes a page or data, and a table is for the terminal; add --format html, md, json or csv"
        )
    if form == "html" and out is None and not show_page and sys.stdout.isatty():
        raise BadInput("--format html prints a whole page; add --out page.html, or --open to look at it")
    if reference is None and (rule_id is not None or tolerance is not None):
        raise BadInput("--rule and --tolerance need a reference; add --reference")
    rule = chosen_rule(rule_id, tolerance)
    directory = runs_directory(runs_dir)
    paths = distinct(find_run(run, directory) for run in runs)
    curve: LossCurve | None = None
    with damage_explains(paths):
        recorded = beside_imported(read_marked(paths), directory, published)
        if reference is not None:
            curve, name = named_curve(reference, directory), Path(reference).name
            verdicts = [loss_aligned(find_curve(path), curve, rule, curve.run or name) for path in paths]
            recorded = _with_verdicts(recorded, verdicts, reference)
        if form == "table":
            from flagperf.report.screens import run_report

            show(run_report(recorded, published=published))
        else:
            text = _text(recorded, form, cast(Lang, lang), curve, allow_simulated, published)
            if out is None and not show_page:
                echo_text(text)
            else:
                path = out or Path(tempfile.mkdtemp(prefix="flagperf-")) / "page.html"
                try:
                    write_atomically(path, "\n".join(map(visible, text.split("\n"))).encode())
                except OSError as error:
                    raise cannot_write(f"cannot write {path}: {error.strerror}; see --out", error) from None
                echo(f"{form}: {path}", err=True)
                if show_page:
                    open_page(path)
    for path in paths:
        warn_unless_verified(path)


def _text(
    recorded: Sequence[RecordedRun],
    form: str,
    lang: Lang,
    reference: LossCurve | None,
    allow_simulated: bool,
    published: bool | None,
) -> str:
    if form == "json":
        from flagperf.report.run_json import to_json

        return safe_json(to_json(recorded).decode()) + "\n"
    if form == "csv":
        from flagperf_publish.export.data_files import to_csv

        return to_csv(recorded)
    if form == "md":
        return page(recorded, lang, allow_simulated=allow_simulated, published=published)
    document = web_document(
        recorded,
        lang,
        courses={each.run.id: read_course(Path(each.path), each.run) for each in recorded[:MAX_CHARTED]},
        reference=reference,
        allow_simulated=allow_simulated,
        published=published,
    )
    return to_html(document)


def _with_verdicts(runs: Sequence[RecordedRun], verdicts: Sequence[Metric], reference: str) -> list[RecordedRun]:
    if all(verdict.value is None for verdict in verdicts):
        why = []
        for each, verdict in zip(runs, verdicts, strict=True):
            found = verdict.inputs.get("obstacles") or [f"it has no loss curve: {verdict.reason}, {verdict.detail}"]
            why.append(f"{each.run.id}: {'; '.join(found)}")
        raise BadInput(f"cannot align with {reference}: {'; '.join(why)}; {ADVICE}")
    return [
        msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, metrics=(*each.run.metrics, verdict)))
        for each, verdict in zip(runs, verdicts, strict=True)
    ]
