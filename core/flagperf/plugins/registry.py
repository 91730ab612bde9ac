"""Plugins: what all usable plugins gave, looked up by the words that users type."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import pluggy

from flagperf.api import (
    Allocation,
    CaseReference,
    Cluster,
    DeviceBackend,
    Launcher,
    MemoryProbe,
    OperatorLibrary,
)
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, FlagPerfError, PluginFailed, unknown_name
from flagperf.plugins.cases import Case, intended_name, read_case, with_published
from flagperf.plugins.cluster_answers import check_nodes, cluster_options
from flagperf.plugins.load import (
    ADAPTER_PREFIX,
    OWN_DISTRIBUTION,
    LoadedPlugins,
    PluginStatus,
    load_entry_points,
    plugins_without_entry_point,
)


class Provided(msgspec.Struct, frozen=True):
    """A value that a hook of a plugin gave (a device backend, a case), and which plugin."""

    value: Any
    plugin: PluginStatus

    @property
    def adapter(self) -> str:
        return self.plugin.adapter

    def guarded(self, contract: type) -> Any:
        """The value as the parent calls it, see `guard`."""
        from flagperf.plugins.guard import Guarded  # lazy: commands that only list things call nothing

        return Guarded(self.value, self.plugin, contract)


class Plugins:
    """Everything is asked for at most once, by each process only for what it needs."""

    def __init__(
        self, loaded: LoadedPlugins, without_entry_point: Callable[[], Sequence[PluginStatus]] = tuple
    ) -> None:
        self._manager = loaded.manager
        self._trial = loaded.trial
        self._without_entry_point = without_entry_point
        self._plugins = {status.key: status for status in loaded.statuses}
        self._problems: dict[str, list[str]] = collections.defaultdict(list)
        for status in loaded.statuses:
            if status.problem:
                self._problems[status.key].append(status.problem)
        self._hanging: set[str] = set()
        """Keys of plugins that did not come back from a hook. They are not asked again: each time takes its limit."""
        self._provided: dict[str, list[Provided]] = {}
        self._cases: dict[str, Case] | None = None
        self._broken_cases: dict[str, str] = {}
        """What a case that cannot be used would be called -> why it cannot."""

    # --- vendors ----------------------------------------------------------------------------------------------------

    def device_backends(self) -> list[Provided]:
        return self._by_word("flagperf_devices", DeviceBackend, "vendor")

    def vendor_word(self, word: str) -> str:
        """The vendor that a user means, by its word or an alias."""
        backends: list[DeviceBackend] = [provided.value for provided in self.device_backends()]
        words = {alias: backend.vendor for backend in backends for alias in backend.aliases}
        words |= {backend.vendor: backend.vendor for backend in backends}  # a word goes before another's alias
        if word.lower() not in words:
            self._refuse_broken(word.lower())
            package = "(a vendor's cards come with its adapter, the package flagperf-<vendor>: install that)"
            raise unknown_name("vendor", word, words, self.hint("flagperf_devices") or package)
        return words[word.lower()]

    def _refuse_broken(self, word: str) -> None:
        """An installed plugin of this name that gives no such vendor says why itself."""
        status = self.plugin_named(word)
        if status is None:
            return
        what = f"vendor {word!r} cannot be used: {status.adapter}"
        if status.problem:
            raise PluginFailed(f"{what}: {status.problem}")
        raise BadInput(f"{what}: it gives no device backend for this word")

    def plugin_named(self, word: str) -> PluginStatus | None:
        """The plugin that should have given a vendor: by its entry point or its distribution."""
        names = (word, f"{ADAPTER_PREFIX}{word}")
        found = [each for each in self.statuses() if each.distribution in names or each.name == word]
        return next((each for each in found if each.distribution != OWN_DISTRIBUTION), None)

    def provided_backend(self, vendor: str) -> Provided:
        backends = self.device_backends()
        if vendor not in [given.value.vendor for given in backends]:
            self._refuse_broken(vendor)
        return self._one(backends, vendor, "vendor", "device backend", "flagperf_devices")

    def device_backend(self, vendor: str) -> DeviceBackend:
        """Itself, for a process of its own: a worker."""
        backend: DeviceBackend = self.provided_backend(vendor).value
        return backend

    def guarded_backend(self, vendor: str) -> DeviceBackend:
        backend: DeviceBackend = self.provided_backend(vendor).guarded(DeviceBackend)
        return backend

    def launcher(self, vendor: str) -> Launcher:
        """Of the same plugin as the device backend: a stranger's launcher does not start another's cards."""
        owner = self.provided_backend(vendor).plugin
        provided = self._by_word("flagperf_launchers", Launcher, "vendor")
        for each in provided:
            if each.value.vendor == vendor and each.plugin == owner:
                launcher: Launcher = each.guarded(Launcher)
                return launcher
        self._raise_failed("flagperf_launchers", owner)
        raise BadInput(f"{owner.adapter} gives no launcher for its vendor {vendor!r}")

    def memory_probes(self, vendor: str) -> list[MemoryProbe]:
        """None where the vendor has none. Raises PluginFailed where its hook failed instead of naming them."""
        owner = self.provided_backend(vendor).plugin
        provided = self._call("flagperf_memory_probes", MemoryProbe)
        probes = [each.value for each in provided if each.value.vendor == vendor and each.plugin == owner]
        if not probes:
            self._raise_failed("flagperf_memory_probes", owner)
        return probes

    def call_adapter_hooks(self, with_memory: bool) -> None:
        """Before an adapter is asked in a fork, where no hook is tried: what hangs or ends a process is found here."""
        self._call("flagperf_launchers", Launcher)
        if with_memory:
            self._call("flagperf_memory_probes", MemoryProbe)

    def _raise_failed(self, hook: str, plugin: PluginStatus) -> None:
        """Where this hook of the plugin went wrong: what it did not give is not simply absent."""
        failed = [each.problem for each in self._with_problems(hook) if each.key == plugin.key]
        if failed:
            raise PluginFailed(f"adapter {plugin.adapter} failed: {failed[0]}")

    def broken_adapters(self) -> list[str]:
        """Plugins that may have had a vendor to give: not loaded, or not able to name their device backends."""
        self.device_backends()
        return self._described("flagperf_devices")

    def adapters_without_probes(self) -> list[str]:
        """Plugins that were not able to name their memory probes."""
        self._call("flagperf_memory_probes", MemoryProbe)
        return self._described("flagperf_memory_probes")

    def _described(self, hook: str) -> list[str]:
        return [f"{status.adapter}: {status.problem}" for status in self._with_problems(hook)]

    # --- sites and benchmark authors --------------------------------------------------------------------------------

    def cluster(self, name: str) -> Cluster:
        clusters = self._by_word("flagperf_clusters", Cluster, "name")
        given = self._one(clusters, name, "name", "cluster", "flagperf_clusters")
        cluster: Cluster = given.guarded(Cluster)
        return cluster

    @contextlib.contextmanager
    def allocation(self, name: str, num_nodes: int, options: Mapping[str, Any] | None = None) -> Iterator[Allocation]:
        """Nodes of a cluster, given back at the end."""
        cluster = self.cluster(name)
        allocation = cluster.allocate(num_nodes, cluster_options(cluster, options or {}))
        try:
            check_nodes(name, allocation, num_nodes)
            yield allocation
        except BaseException:
            with contextlib.suppress(FlagPerfError):  # what went wrong first is what the user needs
                allocation.release()
            raise
        allocation.release()

    def num_nodes(self, name: str, options: Mapping[str, Any]) -> int:
        """How many nodes these options of a cluster name."""
        cluster = self.cluster(name)
        return cluster.num_nodes(cluster_options(cluster, options))

    def cluster_names(self) -> list[str]:
        return [provided.value.name for provided in self._by_word("flagperf_clusters", Cluster, "name")]

    def cases(self) -> dict[str, Case]:
        """By name, sorted. A case that cannot be used is a problem of its plugin, and of nobody else."""
        if self._cases is None:
            found = [
                case for provided in self._call("flagperf_cases", CaseReference) for case in self._read_case(provided)
            ]
            unique = self._without_conflicts("flagperf_cases", found, lambda case: case.manifest.name)
            cases = {provided.value.manifest.name: provided.value for provided in unique}
            self._cases = dict(sorted(cases.items()))
        return self._cases

    def _read_case(self, provided: Provided) -> list[Provided]:
        reference: CaseReference = provided.value
        try:
            return [Provided(read_case(reference, provided.plugin), provided.plugin)]
        except BadInput as error:
            self._problems[provided.plugin.key].append(f"flagperf_cases: {error}")
            self._broken_cases[intended_name(reference)] = str(error)
            return []

    def case(self, name: str) -> Case:
        """With its published results."""
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
        """All cases with their published results, but those whose results cannot be read."""
        found = {}
        for name, case in self.cases().items():
            try:
                found[name] = with_published(case)
            except BadInput as error:
                self._problems[case.plugin.key].append(f"flagperf_cases: {error}")
        return found

    def case_problems(self) -> list[PluginStatus]:
        """Plugins whose cases, or some of them, cannot be listed: not loaded, or with a case that cannot be used."""
        self.cases()
        return self._with_problems("flagperf_cases")

    def operator_libraries(self) -> dict[str, Provided]:
        """By name. Their methods are called in workers alone."""
        return {each.value.name: each for each in self._by_word("flagperf_operator_libraries", OperatorLibrary, "name")}

    # --- problems ---------------------------------------------------------------------------------------------------

    def statuses(self) -> list[PluginStatus]:
        """Every plugin with all that is wrong with it, after every hook has been called."""
        self._note_strangers("flagperf_launchers", self._by_word("flagperf_launchers", Launcher, "vendor"))
        self._note_strangers("flagperf_memory_probes", self._call("flagperf_memory_probes", MemoryProbe))
        self._by_word("flagperf_clusters", Cluster, "name")
        self.operator_libraries()
        self.cases()
        asked = [
            msgspec.structs.replace(status, problem="; ".join(dict.fromkeys(self._problems.get(key, ()))))
            for key, status in self._plugins.items()
        ]
        return [*asked, *self._without_entry_point()]

    def _with_problems(self, hook: str) -> list[PluginStatus]:
        """Those that could not be loaded or asked, or where this hook went wrong, each with these reasons alone."""
        found = []
        for key, status in self._plugins.items():
            known = self._problems.get(key, ())
            reasons = [each for each in known if each == status.problem or each.startswith(hook)]
            reasons = reasons or (list(known) if key in self._hanging else [])
            if reasons:
                found.append(msgspec.structs.replace(status, problem="; ".join(dict.fromkeys(reasons))))
        return found

    def _note_strangers(self, hook: str, provided: Iterable[Provided]) -> None:
        """A launcher or probe for a word whose device backend is not of the same plugin is never used."""
        owners = {each.value.vendor: each for each in self.device_backends()}
        for each in provided:
            owner = owners.get(each.value.vendor)
            if owner is None and self._has_failed(each.plugin, "flagperf_devices"):
                continue  # that is why there is no backend, and it is said
            if owner is None or owner.plugin != each.plugin:
                whose = f"{owner.adapter} has it" if owner else "no device backend has it"
                self._problems[each.plugin.key].append(f"{hook}: {each.value.vendor!r} is not its word, {whose}")

    def _has_failed(self, plugin: PluginStatus, hook: str) -> bool:
        return plugin.key in self._hanging or any(
            problem.startswith(hook) for problem in self._problems.get(plugin.key, ())
        )

    def hint(self, hook: str) -> str:
        """After a name that this hook of no plugin gave: the problem of the one that may have had it, or who has."""
        failed = self._described(hook)
        if len(failed) == 1:
            return f"(not every plugin could be asked: {failed[0]})"
        broken = [status.name for status in self.statuses() if status.problem]
        see = f"see `{flagperf_command('vendors', 'list')}`"
        return f"(plugins with problems: {', '.join(broken)}; {see})" if broken else ""

    # --- calling hooks ----------------------------------------------------------------------------------------------

    def _call(self, hook: str, kind: type) -> list[Provided]:
        if hook not in self._provided:
            implementations = self._returning(hook, kind)
            self._provided[hook] = [
                Provided(value, self._plugins[implementation.plugin_name])
                for implementation in implementations
                for value in self._answer(implementation, hook, kind)
            ]
            self._provided[hook].sort(key=lambda provided: list(self._plugins).index(provided.plugin.key))
        return self._provided[hook]

    def _returning(self, hook: str, kind: type) -> list[pluggy.HookImpl]:
        """Without those that hang or end the process."""
        found = reversed(getattr(self._manager.hook, hook).get_hookimpls())
        implementations = [each for each in found if each.plugin_name not in self._hanging]
        own = [each for each in implementations if self._is_own(each) or not self._trial]
        foreign = [each for each in implementations if each not in own]
        if not foreign:
            return own
        from flagperf.plugins.trial import try_out  # lazy: many installations have no other plugin

        problems = try_out([functools.partial(self._answer, each, hook, kind) for each in foreign])
        for each, problem in zip(foreign, problems, strict=True):
            if problem:
                self._problems[each.plugin_name].append(f"{hook} {problem}")
                self._hanging.add(each.plugin_name)
        return [*own, *(each for each, problem in zip(foreign, problems, strict=True) if not problem)]

    def _is_own(self, implementation: pluggy.HookImpl) -> bool:
        return self._plugins[implementation.plugin_name].distribution == OWN_DISTRIBUTION

    def _answer(self, implementation: pluggy.HookImpl, hook: str, kind: type) -> Sequence[Any]:
        problems = self._problems[implementation.plugin_name]
        try:
            answer = list(cast("Iterable[Any]", implementation.function()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a plugin boundary
            problems.append(f"{hook} raised {type(error).__name__}: {error}")
            return []
        wrong = [value for value in answer if not isinstance(value, kind)]
        if wrong:
            problems.append(f"{hook} gave {type(wrong[0]).__name__}, not {kind.__name__}")
        usable = [value for value in answer if isinstance(value, kind)]
        if kind is CaseReference:  # its file is checked
            return usable
        from flagperf.plugins.guard import wrong_attributes  # lazy: `cases list` needs none

        faults = {id(value): wrong_attributes(value, kind) for value in usable}
        wrong_ones = {key: found for key, found in faults.items() if found}
        problems += [f"{hook}: {text}" for found in wrong_ones.values() for text in found]
        return [value for value in usable if id(value) not in wrong_ones]

    def _by_word(self, hook: str, kind: type, attribute: str) -> list[Provided]:
        return self._without_conflicts(hook, self._call(hook, kind), lambda value: str(getattr(value, attribute)))

    def _without_conflicts(
        self, hook: str, provided: Iterable[Provided], word_of: Callable[[Any], str]
    ) -> list[Provided]:
        """A word claimed twice belongs to the distribution that is named after it, else to nobody."""
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


def load_plugins(needed: Collection[str] | None = None, trial: bool = False) -> Plugins:
    """All that are installed; or our own and those that a job needs, as it names them. `trial`: their hooks are tried
    in a fork also then."""
    return Plugins(load_entry_points(needed=needed, trial=trial), plugins_without_entry_point)
