"""Makes a site of runs, or brings one up to date: a run whose files, labels and references are as they were is not read
again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flagperf import version
from flagperf.bundle.bundle import MAX_JSON_BYTES, read_bundle
from flagperf.bundle.imported import imported_pages, references_of, with_imported
from flagperf.bundle.listing import UNREADABLE, RunLine, run_line
from flagperf.bundle.paths import LABELS_FILE, MANIFEST_FILE, RUN_FILE
from flagperf.bundle.run_record import EXIT_CODES
from flagperf.bundle.verify import damage_explains, verify_bundle
from flagperf.errors import BadInput, MissingPart
from flagperf.files import read_regular
from flagperf.messages import Lang, web
from flagperf.plausibility.doubts import read_marked
from flagperf.report.document import Link
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import published_names
from flagperf_publish.pages.layouts import check_charts, to_html, web_document
from flagperf_publish.pages.timeline import read_course
from flagperf_publish.site.board import BoardRow, board, published_row, run_row
from flagperf_publish.site.site_folder import INDEX, Rendered, SiteFolder, is_safe_id, open_site
from flagperf_publish.site.site_index import index_page

RENDERER = 2
"""Raised when pages or rows of unchanged runs have to be written again although the version of flagperf is the same."""


class SiteWishes(msgspec.Struct, frozen=True):
    """What a site is to be."""

    title: str
    lang: Lang
    allow_simulated: bool
    published: bool | None


class LeftOut(msgspec.Struct, frozen=True):
    """A run that is not on the site."""

    run: str
    why: str
    is_problem: bool = True
    """False for one that is not finished, or simulated: nothing is wrong with it."""


class Built(msgspec.Struct, frozen=True):
    index: str
    num_cases: int
    num_runs: int
    num_published: int
    rendered: tuple[str, ...]
    """Ids of the runs whose pages were written."""
    removed: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    unverified: Mapping[str, str]
    """Id of a run that is on the site and is not verified -> why."""


class _Run(msgspec.Struct, frozen=True):
    """A run that belongs on the site."""

    id: str
    case: str
    created: str
    path: Path
    key: str


Progress = Callable[[int, int, str], None]
"""Told how many pages of how many are written, and the run whose page comes next."""


def build_site(
    out: Path,
    paths: Sequence[Path],
    wanted: SiteWishes,
    runs_dir: Path,
    installed: Callable[[], Mapping[str, Manifest]],
    progress: Progress = lambda _done, _all, _run: None,
) -> Built:
    """`installed` gives the installed cases. Raise BadInput if none of the runs can be shown: nothing is changed."""
    folder = open_site(out)
    imported: dict[str, bytes] = {}  # by case; they are on the pages of its runs
    for page in imported_pages(runs_dir):
        imported[page.case] = imported.get(page.case, b"") + msgspec.json.encode(page)
    runs, left_out = _sorted_out(paths, wanted, imported)
    with folder.making():
        rows, rendered, failed = _rows(folder, runs, wanted, runs_dir, progress)
        left_out += failed
        if not rows:
            reasons = [f"{each.run}: {each.why}" for each in left_out]
            more = [f"and {len(reasons) - 3} more"] if len(reasons) > 3 else []
            raise BadInput(f"no run can be put on the site: {'; '.join([*reasons[:3], *more])}")
        oldest_first = sorted((run for run in runs if run.id in rows), key=lambda run: run.created)
        newest = {rows[run.id].case: run.path for run in oldest_first}
        known = installed() if wanted.published is not False else {}
        # the case that is installed, as `flagperf compare` takes it, else that of its newest run
        manifests = {case: known.get(case) or read_bundle(path).run.manifest for case, path in newest.items()}
        published = [
            msgspec.structs.replace(published_row(name, reference, manifest), case=case)
            for case, manifest in (manifests.items() if wanted.published is not False else ())
            for name, reference in published_names(case, references_of(manifest, runs_dir)).items()
        ]
        cases = board([*rows.values(), *published], manifests, wanted.lang)
        folder.claim(rows, version())
        folder.write_index(index_page(cases, wanted.title, wanted.lang))
        removed = folder.keep_only(rows, version())
    unverified = {name: row.problem for name, row in rows.items() if row.problem}
    return Built(
        str(folder.index), len(cases), len(rows), len(published), tuple(rendered), tuple(removed), tuple(left_out),
        unverified,
    )  # fmt: skip


# --- which runs -----------------------------------------------------------------------------------------------------


def _sorted_out(
    paths: Sequence[Path], wanted: SiteWishes, imported: Mapping[str, bytes]
) -> tuple[list[_Run], list[LeftOut]]:
    """Return the runs that belong on the site, and those that do not."""
    runs: dict[str, _Run] = {}
    left_out: list[LeftOut] = []
    for path in paths:
        line = run_line(path)
        obstacle = _obstacle(line, wanted)
        if obstacle is None and line.id in runs:
            why = f"another run has this id: {runs[line.id].path} and {path}; name one of them"
            obstacle = LeftOut(line.id, why)
        if obstacle is not None:
            left_out.append(obstacle)
            continue
        try:
            key = page_key(path, wanted, imported.get(line.case, b""))
        except OSError as error:
            left_out.append(LeftOut(line.id, f"cannot read {error.filename}: {error.strerror}"))
            continue
        runs[line.id] = _Run(line.id, line.case, line.created, path, key)
    return list(runs.values()), left_out


def _obstacle(line: RunLine, wanted: SiteWishes) -> LeftOut | None:
    if line.status == UNREADABLE:
        return LeftOut(line.id, line.problem or "it was sealed without an ending; see `flagperf runs verify`")
    if not is_safe_id(line.id):
        return LeftOut(line.id, "its id cannot be the name of a file")
    if line.status not in EXIT_CODES:
        return LeftOut(line.id, f"it is not finished: {line.status}", is_problem=False)
    if line.simulated and not wanted.allow_simulated:
        why = "it is simulated: no device was used; use --allow-simulated to show it anyway, marked as simulated"
        return LeftOut(line.id, why, is_problem=False)
    return None


def page_key(path: Path, wanted: SiteWishes, imported: bytes) -> str:
    """Return a hash of all that a page and its row are made from. Of the raw files names and sizes are enough:
    MANIFEST has their hashes, and whether these are right is for `runs verify`."""
    found = hashlib.sha256(repr((RENDERER, version(), wanted.lang, wanted.published)).encode())
    for name in (RUN_FILE, MANIFEST_FILE, LABELS_FILE):
        file = path / name
        content = read_regular(file, MAX_JSON_BYTES) if file.exists() else b""
        found.update(hashlib.sha256(content).digest())
    sizes = sorted((str(file.relative_to(path)), file.lstat().st_size) for file in path.rglob("*"))
    found.update(repr(sizes).encode())
    found.update(imported)
    return found.hexdigest()


# --- pages and rows -------------------------------------------------------------------------------------------------


def _rows(
    folder: SiteFolder, runs: Sequence[_Run], wanted: SiteWishes, runs_dir: Path, progress: Progress
) -> tuple[dict[str, BoardRow], list[str], list[LeftOut]]:
    """Return the rows of runs that have a page, the ids of those that were written now, and why others have none."""
    rows = {run.id: row for run in runs if (row := folder.rendered(run.id, run.key)) is not None}
    missing = [run for run in runs if run.id not in rows]
    if missing:
        check_charts()
    up = Link(web("all_runs", wanted.lang), f"../{INDEX}")
    rendered: list[str] = []
    failed: list[LeftOut] = []
    for number, run in enumerate(missing):
        progress(number, len(missing), run.id)
        try:
            with damage_explains([run.path]):
                (recorded,) = read_marked([run.path])
                recorded = with_imported(recorded, runs_dir)
                document = web_document(
                    [recorded],
                    wanted.lang,
                    courses={recorded.run.id: read_course(run.path, recorded.run)},
                    allow_simulated=wanted.allow_simulated,
                    published=wanted.published,
                )
                page = to_html(msgspec.structs.replace(document, up=up))
                row = run_row(recorded, verify_bundle(run.path).problems, wanted.lang)
        except MissingPart:
            raise
        except BadInput as error:
            failed.append(LeftOut(run.id, str(error)))
            continue
        if not rendered:
            folder.claim([each.id for each in runs], version())
        folder.write_run(page, Rendered(run.key, row))
        rows[run.id] = row
        rendered.append(run.id)
    return {run.id: rows[run.id] for run in runs if run.id in rows}, rendered, failed
