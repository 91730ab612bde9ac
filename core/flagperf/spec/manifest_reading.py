"""Read a case.toml, and check that it is consistent and uses only known names.

Each problem reads `[table] key: what is wrong`. The checks trust types, as the file has been decoded into structs.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flagperf.api import PRECISIONS
from flagperf.errors import BadInput, unknown_name
from flagperf.messages import LANGUAGES
from flagperf.spec.manifest import MANIFEST_FILE, PAGE_PARTS, REFERENCES_FILE, REPORT_METRICS, Manifest, Vocabulary
from flagperf.spec.published import References
from flagperf.spec.toml_files import misfit, read_toml
from flagperf.spec.values import Layer, flatten, resolve

_PLAIN_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:{0}(?:,{0})*)?".format(r"\s*(?:>=|<=|==|!=|<|>)\s*\d+(?:\.\d+)*")
)
"""Matches most requirements. `packaging` checks the others; importing it takes longer than listing all cases."""


def read_manifest(path: Path, vocabulary: Vocabulary) -> Manifest:
    """Read and check a case.toml. Raises BadInput for the first problem, with file, table and key."""
    manifest = _converted(path, read_toml(path), Manifest)
    problems = (
        _identity(manifest),
        _imports(manifest),
        _values(manifest),
        _named_keys(manifest),
        _results(manifest, vocabulary),
        _page(manifest, vocabulary),
        _reference_problems(manifest, vocabulary),
    )
    for problem in itertools.chain.from_iterable(problems):
        raise BadInput(f"{path}: {problem}")
    return manifest


def with_references(manifest: Manifest, path: Path, vocabulary: Vocabulary) -> Manifest:
    """Add the published results of the references.toml beside its case.toml, if there is one. Raises BadInput."""
    file = path.with_name(REFERENCES_FILE)
    if path.name != MANIFEST_FILE or not file.is_file():  # a folder may have several manifests of other names
        return manifest
    found = _converted(file, read_toml(file), References)
    of_file = msgspec.structs.replace(manifest, references=found.references, published_rows=found.published_rows)
    for problem in _reference_problems(of_file, vocabulary):
        raise BadInput(f"{file}: {problem}")
    return msgspec.structs.replace(
        manifest,
        references=(*manifest.references, *found.references),
        published_rows=(*manifest.published_rows, *found.published_rows),
    )


T = TypeVar("T", bound=msgspec.Struct)


def _converted(path: Path, content: dict[str, Any], into: type[T]) -> T:
    try:
        return msgspec.convert(content, into)
    except msgspec.ValidationError:
        raise BadInput(f"{path}: {misfit(content, into)}") from None


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
    texts = {"[title]": manifest.title, "[task]": manifest.task}
    texts |= {f"[profiles.{name}] about": profile.about for name, profile in manifest.profiles.items()}
    texts |= {f"[page.remarks] {name}": text for name, text in manifest.page.remarks.items()}
    texts |= {f"[page.titles] {name}": text for name, text in manifest.page.titles.items()}
    texts |= {f"[[figures]] {figure.name} title": figure.title for figure in manifest.figures}
    for place, text in texts.items():
        yield from _unknown(place, "language", text, LANGUAGES)
        if not text.get("en", "").strip():
            yield f"{place}: the English text is missing (key `en`)"
    if not manifest.precisions:
        yield f"precisions: name at least one of {', '.join(PRECISIONS)}"
    yield from _unknown("precisions", "precision", manifest.precisions, PRECISIONS)
    yield from _repeated("precisions", manifest.precisions)


def _imports(manifest: Manifest) -> Iterator[str]:
    for text in manifest.requires:
        if _PLAIN_REQUIREMENT.fullmatch(text):
            continue
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            Requirement(text)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            yield f"requires: {text!r} is not a requirement such as 'torch>=2.0': {reason}"
    for key in ("check_files", "estimate", "listing"):
        target = getattr(manifest, key)
        if target is not None and not is_object_reference(target):
            yield f"{key}: must be module:function, for example my_cases.toy.data:{key}; got {target!r}"


def is_object_reference(text: str) -> bool:
    module, _, name = text.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), name])


def _values(manifest: Manifest) -> Iterator[str]:
    known = dict(flatten(manifest.values))
    yield from _unknown("[limits]", "key of [values]", manifest.limits, known)
    for key, limit in manifest.limits.items():
        place, value = f'[limits."{key}"]', known.get(key)
        bounds = [bound for bound in (limit.min, limit.above, limit.max) if bound is not None]
        if not bounds and not limit.choices:
            yield f"{place}: the limit is empty; set min, above, max or choices"
        if bounds and (isinstance(value, bool) or not isinstance(value, int | float)):
            yield f"{place}: min, above and max are for numbers, but the value is {value!r}"
        if limit.choices and not isinstance(value, str):
            yield f"{place}: choices are for strings, but the value is {value!r}"
        if limit.max is not None and bounds and max(bounds) > limit.max:
            yield f"{place}: the range is empty: from {max(bounds):g} to {limit.max:g}"
    for key, value in known.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", key):
            yield f"[values] {key!r}: keys may have letters, digits, underscores and hyphens only"
        if not _is_value(value):
            yield f"[values] {key}: must be a string, a number, true, false, or a list of one of these; got {value!r}"
    if manifest.values.get("precision") not in manifest.precisions:
        yield f"[values] precision: must be one of the case's precisions: {', '.join(manifest.precisions)}"
    yield from _refusals(manifest, "[values]", manifest.values)
    yield from _unknown("default_profile", "profile", [manifest.default_profile], manifest.profiles)
    for name, profile in manifest.profiles.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            yield f'[profiles."{name}"]: names have letters, digits, underscores and hyphens only'
        yield from _refusals(manifest, f"[profiles.{name}.values]", profile.values)
        if profile.values.get("precision") not in (None, *manifest.precisions):
            yield f"[profiles.{name}.values] precision: must be one of {', '.join(manifest.precisions)}"


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return len({type(item) for item in value}) <= 1 and all(map(_is_value, value))
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _refusals(manifest: Manifest, place: str, values: dict[str, Any]) -> Iterator[str]:
    """Apply the same rules as for values set by users."""
    try:
        resolve(manifest, [Layer(place, values)])
    except BadInput as error:
        yield f"{place}: {error}"


def _named_keys(manifest: Manifest) -> Iterator[str]:
    """Check the parts of the file that name keys of [values], with [[data]]."""
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
    yield from _repeated("[[data]] name", [each.name for each in manifest.data])
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


def _results(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    yield from _unknown("kind", "kind", [manifest.kind], vocabulary.kinds)
    metrics = (*vocabulary.metrics, *REPORT_METRICS)
    yield from _repeated("[[qualities]] name", [quality.name for quality in manifest.qualities])
    for number, quality in enumerate(manifest.qualities, 1):
        place = f"[[qualities]] {number}"
        if quality.name in metrics and quality.name != "loss":  # a case may replace the loss of the last step
            yield f"{place} name: {quality.name!r} is a metric of every run; choose another name"
        yield from _empty(place, quality, "name", "definition")
        if quality.minimum is not None and quality.maximum is not None and quality.minimum > quality.maximum:
            yield f"{place}: the range is empty: from {quality.minimum:g} to {quality.maximum:g}"
    yield from _repeated("[[figures]] name", manifest.own_metrics)
    for number, figure in enumerate(manifest.figures, 1):
        place = f"[[figures]] {number}"
        if figure.name in metrics:
            yield f"{place} name: {figure.name!r} is a metric of every run; choose another name"
        yield from _empty(place, figure, "name", "row")
    if manifest.target is not None:
        yield from _unknown("[target] metric", "metric", [manifest.target.metric], _metrics(manifest, vocabulary))
    if manifest.mfu_formula is not None:
        yield from _unknown("mfu_formula", "formula", [manifest.mfu_formula], vocabulary.formulas)


def _page(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    page = manifest.page
    for name, given, allowed in (("columns", page.columns, vocabulary.columns), ("rows", page.rows, vocabulary.rows)):
        if not given:
            yield f"[page] {name}: must not be empty"
        yield from _unknown(f"[page] {name}", name.removesuffix("s"), given, [*allowed, *manifest.own_metrics])
        yield from _repeated(f"[page] {name}", given)
    for table, texts in (("remarks", page.remarks), ("titles", page.titles)):
        yield from _unknown(f"[page.{table}]", "row of this page", texts, page.rows)
    yield from _unknown("[page] parts", "part", page.parts, PAGE_PARTS)
    values = dict(flatten(manifest.values))
    yield from _unknown("[page] optimisation_keys", "key of [values]", page.optimisation_keys, values)
    if (pages := manifest.published_pages) is None:
        return
    metrics = _metrics(manifest, vocabulary)
    yield from _unknown("[published_pages] columns", "metric", pages.columns.values(), metrics)
    for known in pages.configurations:
        yield from _unknown("[[published_pages.configurations]] values", "key of [values]", known.values, values)
    numbers = {"nominal_parameters": pages.nominal_parameters, "tokens_per_sample": pages.tokens_per_sample}
    for name, number in {**numbers, "flops": pages.flops}.items():
        if number is not None and number < 1:
            yield f"[published_pages] {name}: must be at least 1; got {number}"


def _reference_problems(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    metrics = [*_metrics(manifest, vocabulary), *REPORT_METRICS]
    for number, reference in enumerate(manifest.references, 1):
        place = f"[[references]] {number}"
        yield from _empty(place, reference, "vendor", "device", "source")
        for key in ("nodes", "devices_per_node"):
            if getattr(reference, key) < 1:
                yield f"{place} {key}: must be at least 1; got {getattr(reference, key)}"
        yield from _unknown(f"{place} precision", "precision", [reference.precision], PRECISIONS)
        yield from _unknown(f"{place} values", "metric", reference.values, metrics)
        for name, value in reference.values.items():
            if not math.isfinite(value):
                yield f"{place} values: {name} is {value}; omit values that were not published"
    for number, rows in enumerate(manifest.published_rows, 1):
        place = f"[[published_rows]] {number}"
        yield from _empty(place, rows, "vendor", "device", "row", "source")
        yield from _unknown(f"{place} source", "label", re.findall(r"{(.*?)}", rows.source), [*rows.by, *rows.where])
        for line_number, line in enumerate(rows.values, 1):
            *labels, result = line or ("",)
            if len(labels) != len(rows.by) or not all(isinstance(label, str) for label in labels):
                yield f"{place} values {line_number}: begin with the labels {', '.join(rows.by)}; got {line}"
            elif isinstance(result, str) or not math.isfinite(result) or result <= 0:
                yield f"{place} values {line_number}: end with a number above 0; got {result!r}"


def _metrics(manifest: Manifest, vocabulary: Vocabulary) -> list[str]:
    return [*vocabulary.metrics, *manifest.own_metrics]


def _empty(place: str, table: msgspec.Struct, *keys: str) -> Iterator[str]:
    return (f"{place} {key}: must not be empty" for key in keys if not getattr(table, key).strip())


def _unknown(place: str, kind: str, names: Collection[str], known: Collection[str]) -> Iterator[str]:
    return (f"{place}: {unknown_name(kind, name, known)}" for name in names if name not in known)


def _repeated(place: str, names: Sequence[str]) -> Iterator[str]:
    return (f"{place}: {name!r} is listed twice" for name in dict.fromkeys(names) if names.count(name) > 1)
