"""Checks that a case.toml is consistent and uses only known names. Each problem reads `[table] key: what is wrong`.

The file has already been decoded into structs, so types are correct here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from flagperf.api import PRECISIONS
from flagperf.errors import BadInput, unknown_name
from flagperf.messages import LANGUAGES
from flagperf.spec.manifest import MANIFEST_FILE, PAGE_PARTS, REFERENCES_FILE, REPORT_METRICS, Manifest, Vocabulary
from flagperf.spec.published import References
from flagperf.spec.toml_files import misfit, read_toml
from flagperf.spec.values import Layer, Limit, flatten, resolve

if TYPE_CHECKING:
    from flagperf.spec.manifest import Quality
    from flagperf.spec.published import PublishedResult, PublishedRows

_PLAIN_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:{0}(?:,{0})*)?".format(r"\s*(?:>=|<=|==|!=|<|>)\s*\d+(?:\.\d+)*")
)
"""Matches most requirements. `packaging` checks the others; importing it takes longer than listing all cases."""


def problems(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    """Lazily yields the problems, in the order of the file."""
    for rule in _RULES:
        yield from rule(manifest)
    for name_rule in _NAME_RULES:
        yield from name_rule(manifest, vocabulary)


# --- identity -------------------------------------------------------------------------------------------------------


def _identity(manifest: Manifest) -> Iterator[str]:
    if not re.fullmatch(r"[a-z0-9_]+", manifest.name):
        yield f"name: use lower-case letters, digits and underscores only; got {manifest.name!r}"
    if manifest.version < 1:
        yield f"version: must be at least 1; got {manifest.version}"
    if manifest.min_devices < 1:
        yield f"min_devices: must be at least 1; got {manifest.min_devices}"
    for key in ("model", "dataset", "sample_unit"):
        if not getattr(manifest, key).strip():
            yield f"{key}: must not be empty"


def _texts(manifest: Manifest) -> Iterator[str]:
    texts = {"[title]": manifest.title, "[task]": manifest.task}
    texts |= {f"[profiles.{name}] about": profile.about for name, profile in manifest.profiles.items()}
    texts |= {f"[page.remarks] {name}": text for name, text in manifest.page.remarks.items()}
    texts |= {f"[page.titles] {name}": text for name, text in manifest.page.titles.items()}
    texts |= {f"[[figures]] {figure.name} title": figure.title for figure in manifest.figures}
    for place, text in texts.items():
        yield from _unknown(place, "language", text, LANGUAGES)
        if not text.get("en", "").strip():
            yield f"{place}: the English text is missing (key `en`)"


def _precisions(manifest: Manifest) -> Iterator[str]:
    if not manifest.precisions:
        yield f"precisions: name at least one of {', '.join(PRECISIONS)}"
    yield from _unknown("precisions", "precision", manifest.precisions, PRECISIONS)
    yield from _repeated("precisions", manifest.precisions)


def _requirements(manifest: Manifest) -> Iterator[str]:
    for text in manifest.requires:
        if not _PLAIN_REQUIREMENT.fullmatch(text):
            yield from _requirement(text)


def _requirement(text: str) -> Iterator[str]:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        yield f"requires: {text!r} is not a requirement such as 'torch>=2.0': {reason}"


def _check_function(manifest: Manifest) -> Iterator[str]:
    for key in ("check_files", "estimate", "listing"):
        target = getattr(manifest, key)
        if target is not None and not is_object_reference(target):
            yield f"{key}: must be module:function, for example my_cases.toy.data:{key}; got {target!r}"


def is_object_reference(text: str) -> bool:
    module, _, name = text.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), name])


# --- values ---------------------------------------------------------------------------------------------------------


def _values(manifest: Manifest) -> Iterator[str]:
    for key, value in flatten(manifest.values):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", key):
            yield f"[values] {key!r}: keys may have letters, digits, underscores and hyphens only"
        if not _is_value(value):
            yield f"[values] {key}: must be a string, a number, true, false, or a list of one of these; got {value!r}"
    if manifest.values.get("precision") not in manifest.precisions:
        yield f"[values] precision: must be one of the case's precisions: {', '.join(manifest.precisions)}"
    yield from _refusals(manifest, "[values]", manifest.values)


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return len({type(item) for item in value}) <= 1 and all(map(_is_value, value))
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _limits(manifest: Manifest) -> Iterator[str]:
    known = dict(flatten(manifest.values))
    yield from _unknown("[limits]", "key of [values]", manifest.limits, known)
    for key, limit in manifest.limits.items():
        yield from _limit(f'[limits."{key}"]', limit, known.get(key))


def _limit(place: str, limit: Limit, value: Any) -> Iterator[str]:
    bounds = [bound for bound in (limit.min, limit.above, limit.max) if bound is not None]
    if not bounds and not limit.choices:
        yield f"{place}: the limit is empty; set min, above, max or choices"
    if bounds and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield f"{place}: min, above and max are for numbers, but the value is {value!r}"
    if limit.choices and not isinstance(value, str):
        yield f"{place}: choices are for strings, but the value is {value!r}"
    if limit.max is not None and bounds and max(bounds) > limit.max:
        yield f"{place}: the range is empty: from {max(bounds):g} to {limit.max:g}"


def _profiles(manifest: Manifest) -> Iterator[str]:
    yield from _unknown("default_profile", "profile", [manifest.default_profile], manifest.profiles)
    for name, profile in manifest.profiles.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            yield f'[profiles."{name}"]: names have letters, digits, underscores and hyphens only'
        yield from _refusals(manifest, f"[profiles.{name}.values]", profile.values)
        if profile.values.get("precision") not in (None, *manifest.precisions):
            yield f"[profiles.{name}.values] precision: must be one of {', '.join(manifest.precisions)}"


def _refusals(manifest: Manifest, place: str, values: dict[str, Any]) -> Iterator[str]:
    """The same rules as for values set by users."""
    try:
        resolve(manifest, [Layer(place, values)])
    except BadInput as error:
        yield f"{place}: {error}"


def _keys(manifest: Manifest) -> Iterator[str]:
    known = dict(flatten(manifest.values))
    yield from _unknown("[page_names]", "key of [values]", manifest.page_names, known)
    if manifest.libraries_key is not None:
        yield from _unknown("libraries_key", "key of [values]", [manifest.libraries_key], known)
        if not isinstance(known.get(manifest.libraries_key), list):
            yield f"libraries_key: the value of {manifest.libraries_key} must be a list of names"
    numbers = {"sequence_key": manifest.sequence_key, "[target] key": getattr(manifest.target, "key", None)}
    for place, key in numbers.items():
        if key is None:
            continue
        yield from _unknown(place, "key of [values]", [key], known)
        if isinstance(known.get(key), bool) or not isinstance(known.get(key), int | float):
            yield f"{place}: the value of {key} must be a number; got {known.get(key)!r}"


def _data(manifest: Manifest) -> Iterator[str]:
    known, names = dict(flatten(manifest.values)), [each.name for each in manifest.data]
    yield from _repeated("[[data]] name", names)
    for each in manifest.data:
        place = f"[[data]] {each.name}"
        yield from _unknown(place, "key of [values]", list(each.keys), known)
        files = [name for choice in each.choices for name in choice]
        yield from _unknown(f"{place}, rows", "file", each.rows, files)
        for name in files:
            if not name or name.startswith("/") or ".." in name.split("/"):
                yield f"{place}, files: {name!r} is not a path inside --data-dir"
        for url in each.urls:
            if not re.fullmatch(r"https?://\S+", url):
                yield f"{place}, url: must begin with https://; got {url!r}"


# --- results --------------------------------------------------------------------------------------------------------


def _kind(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    yield from _unknown("kind", "kind", [manifest.kind], vocabulary.kinds)


def _qualities(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    yield from _repeated("[[qualities]] name", [quality.name for quality in manifest.qualities])
    for number, quality in enumerate(manifest.qualities, 1):
        yield from _quality(f"[[qualities]] {number}", quality, vocabulary)


def _quality(place: str, quality: Quality, vocabulary: Vocabulary) -> Iterator[str]:
    taken = {*vocabulary.metrics, *REPORT_METRICS} - {"loss"}  # a case may replace the loss of the last step
    if quality.name in taken:
        yield f"{place} name: {quality.name!r} is a metric of every run; choose another name"
    for key in ("name", "definition"):
        if not getattr(quality, key).strip():
            yield f"{place} {key}: must not be empty"
    if quality.minimum is not None and quality.maximum is not None and quality.minimum > quality.maximum:
        yield f"{place}: the range is empty: from {quality.minimum:g} to {quality.maximum:g}"


def _figures(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    yield from _repeated("[[figures]] name", manifest.own_metrics)
    for number, figure in enumerate(manifest.figures, 1):
        place = f"[[figures]] {number}"
        if figure.name in (*vocabulary.metrics, *REPORT_METRICS):
            yield f"{place} name: {figure.name!r} is a metric of every run; choose another name"
        for key in ("name", "row"):
            if not getattr(figure, key).strip():
                yield f"{place} {key}: must not be empty"


def _target(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    if manifest.target is not None:
        yield from _unknown("[target] metric", "metric", [manifest.target.metric], _metrics(manifest, vocabulary))


def _formula(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    if manifest.mfu_formula is not None:
        yield from _unknown("mfu_formula", "formula", [manifest.mfu_formula], vocabulary.formulas)


def _page(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    page = manifest.page
    for name, given, known in (("columns", page.columns, vocabulary.columns), ("rows", page.rows, vocabulary.rows)):
        if not given:
            yield f"[page] {name}: must not be empty"
        yield from _unknown(f"[page] {name}", name.removesuffix("s"), given, [*known, *manifest.own_metrics])
        yield from _repeated(f"[page] {name}", given)
    for table, texts in (("remarks", page.remarks), ("titles", page.titles)):
        yield from _unknown(f"[page.{table}]", "row of this page", texts, page.rows)
    yield from _unknown("[page] parts", "part", page.parts, PAGE_PARTS)
    yield from _unknown(
        "[page] optimisation_keys", "key of [values]", page.optimisation_keys, dict(flatten(manifest.values))
    )


def reference_problems(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    """Of the published results."""
    metrics = [*_metrics(manifest, vocabulary), *REPORT_METRICS]
    for number, reference in enumerate(manifest.references, 1):
        yield from _reference(f"[[references]] {number}", reference, metrics)
    for number, rows in enumerate(manifest.published_rows, 1):
        yield from _published_rows(f"[[published_rows]] {number}", rows)


def _published_rows(place: str, rows: PublishedRows) -> Iterator[str]:
    for key in ("vendor", "device", "row", "source"):
        if not getattr(rows, key).strip():
            yield f"{place} {key}: must not be empty"
    yield from _unknown(f"{place} source", "label", re.findall(r"{(.*?)}", rows.source), [*rows.by, *rows.where])
    for number, line in enumerate(rows.values, 1):
        *labels, value = line or ("",)
        if len(labels) != len(rows.by) or not all(isinstance(label, str) for label in labels):
            yield f"{place} values {number}: begin with the labels {', '.join(rows.by)}; got {line}"
        elif isinstance(value, str) or not math.isfinite(value) or value <= 0:
            yield f"{place} values {number}: end with a number above 0; got {value!r}"


def _reference(place: str, reference: PublishedResult, metrics: Collection[str]) -> Iterator[str]:
    for key in ("vendor", "device", "source"):
        if not getattr(reference, key).strip():
            yield f"{place} {key}: must not be empty"
    for key in ("nodes", "devices_per_node"):
        if getattr(reference, key) < 1:
            yield f"{place} {key}: must be at least 1; got {getattr(reference, key)}"
    yield from _unknown(f"{place} precision", "precision", [reference.precision], PRECISIONS)
    yield from _unknown(f"{place} values", "metric", reference.values, metrics)
    for name, value in reference.values.items():
        if not math.isfinite(value):
            yield f"{place} values: {name} is {value}; omit values that were not published"


def _published_pages(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    pages = manifest.published_pages
    if pages is None:
        return
    yield from _unknown("[published_pages] columns", "metric", pages.columns.values(), _metrics(manifest, vocabulary))
    values = dict(flatten(manifest.values))
    for known in pages.configurations:
        yield from _unknown("[[published_pages.configurations]] values", "key of [values]", known.values, values)
    numbers = {"nominal_parameters": pages.nominal_parameters, "tokens_per_sample": pages.tokens_per_sample}
    for name, number in {**numbers, "flops": pages.flops}.items():
        if number is not None and number < 1:
            yield f"[published_pages] {name}: must be at least 1; got {number}"


def _metrics(manifest: Manifest, vocabulary: Vocabulary) -> list[str]:
    return [*vocabulary.metrics, *manifest.own_metrics]


# --- wording --------------------------------------------------------------------------------------------------------


def _unknown(place: str, kind: str, names: Collection[str], known: Collection[str]) -> Iterator[str]:
    return (f"{place}: {unknown_name(kind, name, known)}" for name in names if name not in known)


def _repeated(place: str, names: Sequence[str]) -> Iterator[str]:
    return (f"{place}: {name!r} is listed twice" for name in dict.fromkeys(names) if names.count(name) > 1)


_RULES = (_identity, _texts, _precisions, _requirements, _check_function, _limits, _values, _profiles, _keys, _data)

_NAME_RULES = (_kind, _qualities, _figures, _target, _formula, _page, reference_problems, _published_pages)

# case.toml: everything that is known about a case without importing its code.


def with_references(manifest: Manifest, path: Path, vocabulary: Vocabulary) -> Manifest:
    """With the published results of the references.toml beside its case.toml, if there is one. Raises BadInput."""
    file = path.with_name(REFERENCES_FILE)
    if path.name != MANIFEST_FILE or not file.is_file():  # a folder may have several manifests of other names
        return manifest
    found = _converted(file, read_toml(file), References)
    of_file = msgspec.structs.replace(manifest, references=found.references, published_rows=found.published_rows)
    for problem in reference_problems(of_file, vocabulary):
        raise BadInput(f"{file}: {problem}")
    return msgspec.structs.replace(
        manifest,
        references=(*manifest.references, *found.references),
        published_rows=(*manifest.published_rows, *found.published_rows),
    )


def _converted(path: Path, content: dict[str, Any], into: type[T]) -> T:
    try:
        return msgspec.convert(content, into)
    except msgspec.ValidationError:
        raise BadInput(f"{path}: {misfit(content, into)}") from None


T = TypeVar("T", bound=msgspec.Struct)


def read_manifest(path: Path, vocabulary: Vocabulary) -> Manifest:
    """Read and check a case.toml. Raises BadInput for the first problem, with file, table and key."""
    manifest = _converted(path, read_toml(path), Manifest)
    for problem in problems(manifest, vocabulary):
        raise BadInput(f"{path}: {problem}")
    return manifest
