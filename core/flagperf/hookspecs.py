"""The whole contract: six hooks. A plugin is a module, found by an entry point of the group `flagperf`.

    # pyproject.toml                               # flagperf_acme/__init__.py
    [project.entry-points.flagperf]                from flagperf.hookspecs import hookimpl
    acme = "flagperf_acme"                         FLAGPERF_HOOK_API = 1

                                                   @hookimpl
                                                   def flagperf_devices(): return [AcmeDevices()]

A plugin says in FLAGPERF_HOOK_API which version of the contract it was written for: hooks and flagperf.api, with
flagperf.kit that adapters are built with. Every version from 1 to HOOK_API works.
All hooks are cheap, touch no hardware, import neither torch nor a vendor library, and may be called twice.
Each plugin is called by itself: one that raises is listed with its reason, and the others work on.
"""

from __future__ import annotations

import pluggy

from flagperf.api import CaseReference, Cluster, DeviceBackend, Launcher, MemoryProbe, OperatorLibrary

HOOK_API = 1
"""Moves when something optional is added: a hook, a method, a field or an attribute with a default. Once per release.
Nothing is removed and no signature changes."""

hookspec = pluggy.HookspecMarker("flagperf")
hookimpl = pluggy.HookimplMarker("flagperf")


@hookspec
def flagperf_devices() -> list[DeviceBackend]:  # type: ignore[empty-body]
    """Give the vendor's device backend.

    Called in every process of flagperf (parent, agent, probe, worker), once each.
    Give a list of DeviceBackend objects, usually one; constructing one must not look for hardware.
    Core joins device, memory probe and launcher of one plugin by their `vendor` word. Of several plugins that claim a
    word, the one whose distribution is called `flagperf-<word>` has it; without such an owner none has it.
    No parameters.
    Since HOOK_API 1.
    """


@hookspec
def flagperf_memory_probes() -> list[MemoryProbe]:  # type: ignore[empty-body]
    """Give the vendor's memory probes, best first.

    Called in the agent and in the probe process, once each.
    Give a list of MemoryProbe objects. Each says in `available` whether it can work on this machine.
    Core takes the first available one of the vendor, in list order, and keeps the reasons of those before it.
    No parameters.
    Since HOOK_API 1.
    """


@hookspec
def flagperf_launchers() -> list[Launcher]:  # type: ignore[empty-body]
    """Give the vendor's launcher.

    Called in the parent (for `flagperf plan`) and in the agent, once each.
    Give a list of Launcher objects, one per vendor word; start from TorchrunLauncher.
    Core takes the one whose `vendor` is that of the run; two for one word are refused like two device backends.
    No parameters.
    Since HOOK_API 1.
    """


@hookspec
def flagperf_clusters() -> list[Cluster]:  # type: ignore[empty-body]
    """Give the ways in which a site's nodes are reached.

    Called in the parent, once.
    Give a list of Cluster objects, each with its own `name`.
    Core takes the one that is asked for by name; of two with one name flagperf's own is kept, else neither.
    No parameters.
    Since HOOK_API 1.
    """


@hookspec
def flagperf_cases() -> list[CaseReference]:  # type: ignore[empty-body]
    """Give benchmark cases.

    Called in the parent, once.
    Give a list of CaseReference objects: where the case's function is, and the path of its case.toml. Neither is
    imported or read by the hook itself.
    Core lists them by the name in case.toml; of two with one name flagperf's own is kept, else neither.
    No parameters.
    Since HOOK_API 1.
    """


@hookspec
def flagperf_operator_libraries() -> list[OperatorLibrary]:  # type: ignore[empty-body]
    """Give libraries of operators to compare with torch's own.

    Called in the parent, and in the workers of a run that names one of the plugin's libraries; once each.
    Give a list of OperatorLibrary objects, each with its own `name`.
    Core takes those that `operators.libraries` names; of two with one name the one of the distribution
    `flagperf-<name>` is kept, else neither.
    No parameters.
    Since HOOK_API 1.
    """
