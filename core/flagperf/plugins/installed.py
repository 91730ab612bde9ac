"""Everything that installed plugins give, looked up by the words that users type."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from flagperf.api import Allocation, CaseReference, Cluster, DeviceBackend, Launcher, MemoryProbe, Node, OperatorLibrary
from flagperf.errors import BadInput, FlagPerfError, PluginFailed, unknown_name
from flagperf.plugins.loading import (
    ADAPTER_PREFIX,
    OWN_DISTRIBUTION,
    WITHOUT,
    Checked,
    LoadedPlugins,
    PluginStatus,
    load_entry_points,
    plugins_without_entry_point,
    told_when_slow,
    wrong_attributes,
)
from flagperf.spec.manifest import Manifest
from flagperf.spec.manifest_reading import is_object_reference, read_manifest, with_references
from flagperf.spec.toml_files import read_toml
from flagperf.text import flagperf_command


class Provided(msgspec.Struct, frozen=True):
    """A value that a hook of a plugin gave (a device backend, a case), and which plugin."""

    value: Any
    plugin: PluginStatus

    @property
    def adapter(self) -> str:
        return self.plugin.adapter

    def checked(self, contract: type) -> Any:
        """Return the value for the command itself: a failure of a method names the plugin."""
        return Checked(self.value, self.plugin, contract)


class Case(msgspec.Struct, frozen=True):
    """A case that a plugin gave, with what its files say."""

    reference: CaseReference
    manifest: Manifest
    plugin: PluginStatus


class Plugins:
    """All that installed plugins give. Each hook is called at most once, and only where its answer is needed."""

    def __init__(
        self, loaded: LoadedPlugins, without_entry_point: Callable[[], Sequence[PluginStatus]] = tuple
    ) -> None:
        self._manager = loaded.manager
        self._left_out = loaded.left_out
        self._without_entry_point = without_entry_point
        self._plugins = {status.key: status for status in loaded.statuses}
        self._problems: dict[str, list[str]] = collections.defaultdict(list)
        for status in loaded.statuses:
            if status.problem:
                self._problems[status.key].append(status.problem)
        self._provided: dict[str, list[Provided]] = {}
        self._cases: dict[str, Case] | None = None
        self._broken_cases: dict[str, str] = {}
        """Name of a case that cannot be used -> why."""

    # --- vendors ----------------------------------------------------------------------------------------------------

    def device_backends(self) -> list[Provided]:
        return self._by_word("flagperf_devices", DeviceBackend, "vendor")

    def vendor_word(self, word: str) -> str:
        """Return the vendor that a user means by a word or an alias. Raise BadInput with near matches."""
        backends: list[DeviceBackend] = [provided.value for provided in self.device_backends()]
        words = {alias: backend.vendor for backend in backends for alias in backend.aliases}
        words |= {backend.vendor: backend.vendor for backend in backends}  # a word goes before another's alias
        if word.lower() not in words:
            self._refuse_broken(word.lower())
            package = "(a vendor's cards come with its adapter, the package flagperf-<vendor>: install that)"
            raise unknown_name("vendor", word, words, self.hint("flagperf_devices") or package)
        return words[word.lower()]

    def _refuse_broken(self, word: str) -> None:
        """Raise the reason of an installed plugin that has this name and gives no such vendor."""
        names = (word, f"{ADAPTER_PREFIX}{word}")
        for status in self.statuses():
            is_named = status.distribution in names or status.name == word
            if is_named and status.distribution != OWN_DISTRIBUTION:
                what = f"vendor {word!r} cannot be used: {status.adapter}"
                if status.problem and not status.is_refused:
                    raise PluginFailed(f"{what}: {status.problem}")
                raise BadInput(f"{what}: {status.problem or 'it gives no device backend for this word'}")

    def provided_backend(self, vendor: str) -> Provided:
        backends = self.device_backends()
        if vendor not in [given.value.vendor for given in backends]:
            self._refuse_broken(vendor)
        return self._one(backends, vendor, "vendor", "device backend", "flagperf_devices")

    def device_backend(self, vendor: str) -> DeviceBackend:
        """Return it unchecked, for a worker: a failure is that process's own."""
        return cast("DeviceBackend", self.provided_backend(vendor).value)

    def checked_backend(self, vendor: str) -> DeviceBackend:
        """Return it for the command itself: a failure of a method names the plugin."""
        return cast("DeviceBackend", self.provided_backend(vendor).checked(DeviceBackend))

    def launcher(self, vendor: str) -> Launcher:
        """Return the launcher of the plugin that has the device backend. Another plugin's launcher is not used."""
        owner = self.provided_backend(vendor).plugin
        provided = self._by_word("flagperf_launchers", Launcher, "vendor")
        for each in provided:
            if each.value.vendor == vendor and each.plugin == owner:
                launcher: Launcher = each.checked(Launcher)
                return launcher
        self._raise_failed("flagperf_launchers", owner)
        raise BadInput(f"{owner.adapter} gives no launcher for its vendor {vendor!r}")

    def memory_probes(self, vendor: str) -> list[MemoryProbe]:
        """Return the vendor's probes, best first. Raise PluginFailed where its hook failed instead of naming them."""
        owner = self.provided_backend(vendor).plugin
        provided = self._call("flagperf_memory_probes", MemoryProbe)
        probes = [each.value for each in provided if each.value.vendor == vendor and each.plugin == owner]
        if not probes:
            self._raise_failed("flagperf_memory_probes", owner)
        return probes

    def _raise_failed(self, hook: str, plugin: PluginStatus) -> None:
        """Raise PluginFailed where this hook of the plugin went wrong, so that nothing counts as simply absent."""
        failed = [each.problem for each in self._with_problems(hook) if each.key == plugin.key]
        if failed:
            raise PluginFailed(f"adapter {plugin.adapter} failed: {failed[0]}")

    def broken_adapters(self) -> list[str]:
        """Describe plugins that may have had a vendor to give: not loaded, or their hook for device backends failed."""
        self.device_backends()
        return self._described("flagperf_devices")

    def adapters_without_probes(self) -> list[str]:
        """Describe plugins whose hook for memory probes failed."""
        self._call("flagperf_memory_probes", MemoryProbe)
        return self._described("flagperf_memory_probes")

    def _described(self, hook: str) -> list[str]:
        return [f"{status.adapter}: {status.problem}" for status in self._with_problems(hook)]

    # --- sites and benchmark authors --------------------------------------------------------------------------------

    def cluster(self, name: str) -> Cluster:
        hook = "flagperf_clusters"
        found = self._one(self._by_word(hook, Cluster, "name"), name, "name", "cluster", hook)
        return cast("Cluster", found.checked(Cluster))

    @contextlib.contextmanager
    def allocation(self, name: str, num_nodes: int, options: Mapping[str, Any] | None = None) -> Iterator[Allocation]:
        """Take nodes of a cluster, and give them back at the end."""
        cluster = self.cluster(name)
        allocation = cluster.allocate(num_nodes, cluster_options(cluster, options or {}))
        try:
            try:
                found = len(msgspec.convert(msgspec.to_builtins(allocation.nodes), tuple[Node, ...]))
            except (AttributeError, TypeError, msgspec.ValidationError) as error:
                raise PluginFailed(f"cluster {name!r} gave no nodes that can be used: {error}") from None
            if found != num_nodes:
                raise PluginFailed(f"cluster {name!r} was asked for {num_nodes} nodes and gave {found}")
            yield allocation
        except BaseException:
            with contextlib.suppress(FlagPerfError):  # what went wrong first is what the user needs
                allocation.release()
            raise
        allocation.release()

    def num_nodes(self, name: str, options: Mapping[str, Any]) -> int:
        """Return how many nodes these options of a cluster name."""
        cluster = self.cluster(name)
        return cluster.num_nodes(cluster_options(cluster, options))

    def cluster_names(self) -> list[str]:
        return [provided.value.name for provided in self._by_word("flagperf_clusters", Cluster, "name")]

    def cases(self) -> dict[str, Case]:
        """Return all cases by name, sorted. A case that cannot be used is a problem of its own plugin alone."""
        if self._cases is None:
            from flagperf.metrics.registry import vocabulary  # not at the top: agents and workers read no case

            found = []
            for given in self._call("flagperf_cases", CaseReference):
                reference, path = given.value, Path(str(given.value.manifest))
                try:
                    if not isinstance(reference.manifest, Path):
                        what = f"the manifest of {reference.target!r} has to be a pathlib.Path"
                        raise BadInput(f"{what}; got {reference.manifest!r}")
                    if not isinstance(reference.target, str) or not is_object_reference(reference.target):
                        raise BadInput(f"{path}: its target is written module:function; got {reference.target!r}")
                    case = Case(reference, read_manifest(path, vocabulary()), given.plugin)
                except BadInput as error:
                    self._problems[given.plugin.key].append(f"flagperf_cases: {error}")
                    name = path.parent.name  # what its author calls it: the name in its file, else its folder's
                    with contextlib.suppress(BadInput):
                        name = str(read_toml(path).get("name") or name)
                    self._broken_cases[name] = str(error)
                else:
                    found.append(Provided(case, given.plugin))
            unique = self._without_conflicts("flagperf_cases", found, lambda case: case.manifest.name)
            self._cases = dict(sorted((each.value.manifest.name, each.value) for each in unique))
        return self._cases

    def case(self, name: str) -> Case:
        """Return a case with its published results. Raise BadInput with its reason, or with near matches."""
        cases = self.cases()
        if name in cases:
            try:
                return with_published(cases[name])
            except BadInput as error:
                raise BadInput(f"case {name!r} cannot be used: {error}") from None
        if name in self._broken_cases:
            raise BadInput(f"case {name!r} cannot be used: {self._broken_cases[name]}")
        raise unknown_name("case", name, [*cases, *self._broken_cases], self.hint("flagperf_cases"))

    def complete_cases(self) -> dict[str, Case]:
        """Return all cases with their published results. Leave out those whose results cannot be read."""
        found = {}
        for name, case in self.cases().items():
            try:
                found[name] = with_published(case)
            except BadInput as error:
                self._problems[case.plugin.key].append(f"flagperf_cases: {error}")
        return found

    def case_problems(self) -> list[PluginStatus]:
        """Return the plugins that were not loaded or have a case that cannot be used, with their reasons."""
        self.cases()
        return self._with_problems("flagperf_cases")

    def operator_libraries(self) -> dict[str, Provided]:
        """Return them by name. Their methods are called in workers alone."""
        return {each.value.name: each for each in self._by_word("flagperf_operator_libraries", OperatorLibrary, "name")}

    # --- problems ---------------------------------------------------------------------------------------------------

    def statuses(self) -> list[PluginStatus]:
        """Call every hook, and return every plugin with all that is wrong with it."""
        self._note_strangers("flagperf_launchers", self._by_word("flagperf_launchers", Launcher, "vendor"))
        self._note_strangers("flagperf_memory_probes", self._call("flagperf_memory_probes", MemoryProbe))
        self._by_word("flagperf_clusters", Cluster, "name")
        self.operator_libraries()
        self.cases()
        asked = [
            msgspec.structs.replace(status, problem="; ".join(dict.fromkeys(self._problems.get(key, ()))))
            for key, status in self._plugins.items()
        ]
        return [*asked, *self._left_out, *self._without_entry_point()]

    def _with_problems(self, hook: str) -> list[PluginStatus]:
        """Return the plugins that were not loaded or whose hook went wrong, each with these reasons alone."""
        found = []
        for key, status in self._plugins.items():
            known = self._problems.get(key, ())
            reasons = [each for each in known if each == status.problem or each.startswith(hook)]
            if reasons:
                found.append(msgspec.structs.replace(status, problem="; ".join(dict.fromkeys(reasons))))
        return found

    def _note_strangers(self, hook: str, provided: Iterable[Provided]) -> None:
        """Note launchers and probes for a word whose device backend is another plugin's: they are never used."""
        owners = {each.value.vendor: each for each in self.device_backends()}
        for each in provided:
            owner = owners.get(each.value.vendor)
            problems = self._problems[each.plugin.key]
            is_said = owner is None and any(problem.startswith("flagperf_devices") for problem in problems)
            if not is_said and (owner is None or owner.plugin != each.plugin):
                whose = f"{owner.adapter} has it" if owner else "no device backend has it"
                problems.append(f"{hook}: {each.value.vendor!r} is not its word, {whose}")

    def hint(self, hook: str) -> str:
        """Return what to add to an unknown name: the problem of the plugin that may have given it, or who has one."""
        failed = self._described(hook)
        if len(failed) == 1:
            return f"(not every plugin could be asked: {failed[0]})"
        broken = [status.name for status in self.statuses() if status.problem]
        see = f"see `{flagperf_command('vendors', 'list')}`"
        return f"(plugins with problems: {', '.join(broken)}; {see})" if broken else ""

    # --- calling hooks ----------------------------------------------------------------------------------------------

    def _call(self, hook: str, kind: type) -> list[Provided]:
        """Return what this hook gave, of all plugins in their order. Ask once; what is wrong becomes a problem."""
        if hook in self._provided:
            return self._provided[hook]
        found = []
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            plugin = self._plugins[implementation.plugin_name]
            problems = self._problems[plugin.key]
            try:
                with told_when_slow(f"waiting for {plugin.adapter}: {hook}; {WITHOUT}={plugin.name} starts without it"):
                    answer = list(implementation.function())
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  a plugin boundary
                problems.append(f"{hook} raised {type(error).__name__}: {error}")
                continue
            wrong = [value for value in answer if not isinstance(value, kind)]
            if wrong:
                problems.append(f"{hook} gave {type(wrong[0]).__name__}, not {kind.__name__}")
            for value in answer:
                if not isinstance(value, kind):
                    continue
                # the file of a case is checked instead
                faults = [] if kind is CaseReference else wrong_attributes(value, kind)
                problems += [f"{hook}: {text}" for text in faults]
                if not faults:
                    found.append(Provided(value, plugin))
        order = list(self._plugins)
        self._provided[hook] = sorted(found, key=lambda provided: order.index(provided.plugin.key))
        return self._provided[hook]

    def _by_word(self, hook: str, kind: type, attribute: str) -> list[Provided]:
        return self._without_conflicts(hook, self._call(hook, kind), lambda value: str(getattr(value, attribute)))

    def _without_conflicts(
        self, hook: str, provided: Iterable[Provided], word_of: Callable[[Any], str]
    ) -> list[Provided]:
        """Keep one for each word. A word claimed twice belongs to the distribution named after it, or to none."""
        claims: dict[str, list[Provided]] = collections.defaultdict(list)
        for each in provided:
            claims[word_of(each.value)].append(each)
        kept: list[Provided] = []
        for word, claimants in claims.items():
            owner_names = (f"{ADAPTER_PREFIX}{word}", OWN_DISTRIBUTION)
            owners = [claim for claim in claimants if claim.plugin.distribution in owner_names]
            winner = claimants if len(claimants) == 1 else owners if len(owners) == 1 else []
            kept += winner
            for claim in claimants:
                if claim not in winner:
                    others = ", ".join(other.adapter for other in claimants if other is not claim)
                    self._problems[claim.plugin.key].append(f"{hook}: {word!r} is also claimed by {others}")
        return kept

    def _one(self, provided: list[Provided], word: str, attribute: str, kind: str, hook: str) -> Provided:
        for each in provided:
            if getattr(each.value, attribute) == word:
                return each
        raise unknown_name(kind, word, [getattr(each.value, attribute) for each in provided], self.hint(hook))


# --- cases and clusters -----------------------------------------------------------------------------------------------


def with_published(case: Case) -> Case:
    """Return the case with its published results. Raise BadInput where they cannot be read."""
    from flagperf.metrics.registry import vocabulary  # not at the top, as above

    manifest = with_references(case.manifest, case.reference.manifest, vocabulary())
    return msgspec.structs.replace(case, manifest=manifest)


def cluster_options(cluster: Cluster, given: Mapping[str, Any]) -> msgspec.Struct:
    """Return options as the cluster's own type. Numbers and switches may be text, as on a command line. Raise BadInput
    for an unknown name or a wrong value."""
    kind = cluster.options
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise unknown_name(f"option of cluster {cluster.name}", name, known, "" if known else "(it has none)")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"options of cluster {cluster.name}: {error}") from None


def load_plugins(needed: Collection[str] | None = None) -> Plugins:
    """Load all installed plugins, or with `needed` (distributions as a job names them) only those and our own."""
    return Plugins(load_entry_points(needed=needed), plugins_without_entry_point)
