"""Functions that answer <tab> in a shell: names that exist, or paths. Where one fails, it offers nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from flagperf.errors import FlagPerfError
from flagperf.text import visible

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offers(words: Callable[[click.Context], Iterable[tuple[str, str]]]) -> Complete:
    """Turn a function that returns (word, help) pairs into one that click asks."""

    @functools.wraps(words)
    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = list(words(ctx))
        except FlagPerfError:
            return []
        offered = [CompletionItem(word, help=visible(about)) for word, about in found if word.startswith(incomplete)]
        return [item for item in offered if item.value == visible(item.value)]  # the shell prints them as they are

    return complete


@_offers
def complete_case(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    return [(name, case.manifest.title["en"]) for name, case in _plugins().cases().items()]


@_offers
def complete_vendor(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    backends = [given.value for given in _plugins().device_backends()]
    return [(word, backend.title.get("en", "")) for backend in backends for word in (backend.vendor, *backend.aliases)]


@_offers
def complete_device_model(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flagperf.plan.card_models import known_models

    return [(card.name, card.vendor) for card in known_models(_plugins(), None)[0]]


@_offers
def complete_cluster(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    return [(name, "") for name in _plugins().cluster_names()]


@_offers
def complete_schema(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flagperf.schemas import SCHEMAS

    return [(name, entry.about) for name, entry in SCHEMAS.items()]


@_offers
def complete_profile(ctx: click.Context) -> Iterable[tuple[str, str]]:
    return [(name, profile.about["en"]) for name, profile in _manifest(ctx).profiles.items()]


@_offers
def complete_precision(ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flagperf.api import PRECISIONS

    return [(name, "") for name in (_manifest(ctx).precisions if _case_word(ctx) else PRECISIONS)]


@_offers
def complete_assignment(ctx: click.Context) -> Iterable[tuple[str, str]]:
    """Offer the key with its `=`; the value is the user's."""
    from flagperf.spec.values import flatten

    return [(f"{key}=", f"now {value}") for key, value in flatten(_manifest(ctx).values)]


@_offers
def complete_status(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flagperf.bundle.listing import STATUSES

    return [(status, "") for status in STATUSES]


@_offers
def _runs(ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flagperf.bundle.listing import list_runs, runs_directory

    lines = list_runs(runs_directory(ctx.params.get("runs_dir")))
    return [*((line.id, line.status) for line in reversed(lines)), ("latest", "the latest that has finished")]


def complete_run(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer ids of runs, or folders if none fits."""
    return _runs(ctx, parameter, incomplete) or complete_folder(ctx, parameter, incomplete)


def complete_file(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def complete_folder(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def _plugins() -> Any:
    from flagperf.plugins.installed import load_plugins

    return load_plugins()


def _manifest(ctx: click.Context) -> Any:
    return _plugins().case(_case_word(ctx)).manifest


def _case_word(ctx: click.Context) -> str:
    """Return the case on the command line. While an option is being completed, click has not named the arguments."""
    return str(ctx.params.get("case") or next(iter(ctx.args), ""))
