"""Which vendor a run uses. The CPU is the default only where every installed adapter reports that it found nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, PluginFailed
from flagperf.spec import NodeFacts, VendorFacts


class VendorChoice(msgspec.Struct, frozen=True):
    facts: VendorFacts
    note: str
    """The first line of a run: which vendor, and why."""


def choose_vendor(
    node: NodeFacts, asked: str | None, fallbacks: Collection[str], broken_adapters: Sequence[str] = ()
) -> VendorChoice:
    """`asked` is a vendor word, already translated from an alias; `fallbacks` are vendors that every machine has.
    `broken_adapters` are installed plugins that could not be asked, each with the reason."""
    if asked is not None:
        facts = _asked_for(node, asked)
        return VendorChoice(facts, facts.shown_vendor)
    adapters = [facts for facts in node.vendors if facts.vendor not in fallbacks]
    _refuse_unclear(adapters, fallbacks)
    present = [facts for facts in adapters if _state(facts) == "present"]
    if len(present) > 1:
        words = ", ".join(facts.vendor for facts in present)
        raise BadInput(f"cards of several vendors are present ({words}); choose one with --vendor")
    if present:
        return VendorChoice(present[0], present[0].shown_vendor)
    if broken_adapters:
        raise BadInput(
            f"no card was found, but not every adapter could be asked: {'; '.join(broken_adapters)}. "
            f"Repair or uninstall it, or use {_alternative(fallbacks)}"
        )
    return _fallback(node, adapters, fallbacks)


def _asked_for(node: NodeFacts, asked: str) -> VendorFacts:
    facts = next(facts for facts in node.vendors if facts.vendor == asked)
    if _state(facts) != "present":
        if facts.has_failed:
            raise PluginFailed(f"--vendor {asked}: nothing is known of its cards on {node.host}: {facts.error}")
        raise BadInput(f"--vendor {asked}: no usable card on {node.host}. {describe_finding(facts)}")
    return facts


def _refuse_unclear(adapters: Sequence[VendorFacts], fallbacks: Collection[str]) -> None:
    unclear = [facts for facts in adapters if _state(facts) not in ("present", "absent")]
    if unclear:
        findings = "; ".join(f"{facts.vendor}: {describe_finding(facts)}" for facts in unclear)
        raise BadInput(f"cannot tell which vendor to use. {findings}. Repair it, or use {_alternative(fallbacks)}")


def _alternative(fallbacks: Collection[str]) -> str:
    return " or ".join(f"--vendor {word}" for word in sorted(fallbacks))


def _fallback(node: NodeFacts, adapters: Sequence[VendorFacts], fallbacks: Collection[str]) -> VendorChoice:
    facts = next((facts for facts in node.vendors if facts.vendor in fallbacks), None)
    if facts is None:
        raise BadInput(f"no installed adapter finds a card here; see `{flagperf_command('vendors', 'list')}`")
    looked = ", ".join(sorted(other.vendor for other in adapters))
    reason = f"no accelerator found by: {looked}" if looked else "no vendor adapter is installed"
    return VendorChoice(facts, f"{facts.vendor} ({reason})")


def describe_finding(facts: VendorFacts) -> str:
    """Evidence, reason or error of one adapter, in one line."""
    if facts.error:
        return facts.error
    if facts.presence is None:
        return "not searched for"
    parts = [*facts.presence.evidence, facts.presence.reason]
    return "; ".join(part for part in parts if part) or facts.presence.state


def _state(facts: VendorFacts) -> str:
    return "error" if facts.error or facts.presence is None else facts.presence.state
