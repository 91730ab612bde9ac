"""What usable plugins gave, joined by the words that users type."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_harness import HEADER, Site, device_source, launcher_source, problem

from flagperf.errors import BadInput, PluginFailed
from flagperf.plugins.installed import load_plugins


def test_an_alias_gives_the_vendor_and_never_hides_anothers_own_word(site: Site) -> None:
    site.add("flagperf-registrytest2a", device_source("registrytest2a"))
    site.add("flagperf-registrytest2b", device_source("registrytest2b", aliases=["registrytest2a", "rt"]))
    asked = ("registrytest2b", "rt", "RT", "registrytest2a")
    assert [site.load().vendor_word(word)[-1] for word in asked] == ["b", "b", "b", "a"]


@pytest.mark.parametrize(
    ("own", "stranger", "error", "words"),
    [
        ("", "", BadInput, "{own} gives no launcher for its vendor 'registrytest3{index}'"),
        ("", "launcher", BadInput, "{own} gives no launcher for its vendor 'registrytest3{index}'"),
        (
            "\n@hookimpl\ndef flagperf_launchers():\n    raise OSError('no tool')\n", "", PluginFailed,
            "adapter {own} failed: flagperf_launchers raised OSError: no tool",
        ),
    ],
)  # fmt: skip
def test_a_vendor_without_a_launcher_of_its_own_plugin_says_why(
    site: Site, own: str, stranger: str, error: type[Exception], words: str, request: pytest.FixtureRequest
) -> None:
    index = request.node.callspec.indices["own"]
    word = f"registrytest3{index}"
    site.add(f"flagperf-{word}", device_source(word) + own)
    if stranger:
        site.add("flagperf-stranger4", HEADER + launcher_source(word, name="strange"))
    plugins = site.load()
    with pytest.raises(error) as raised:
        plugins.launcher(word)
    assert str(raised.value) == words.format(own=f"flagperf-{word} 1.0", index=index)
    assert not stranger or f"{word!r} is not its word" in problem(plugins, "flagperf_stranger4")


def test_one_plugin_that_gives_a_word_twice_is_refused_for_that_word(site: Site) -> None:
    plugins = site.add("flagperf-registrytest7", device_source("registrytest7", "registrytest7")).load()
    assert plugins.device_backends() == []
    assert "registrytest7" in problem(plugins, "flagperf_registrytest7")


def test_good_things_beside_wrong_ones_are_kept(site: Site) -> None:
    source = device_source("registrytest9").replace("return [backend", "return [None, 7] + [backend")
    plugins = site.add("registrytest9", source).load()
    assert [provided.value.vendor for provided in plugins.device_backends()] == ["registrytest9"]
    assert problem(plugins, "registrytest9") == "flagperf_devices gave NoneType, not DeviceBackend"


def test_a_hook_is_called_once_and_its_problem_listed_once(site: Site) -> None:
    source = (
        f"{HEADER}calls = []\n@hookimpl\ndef flagperf_devices():\n    calls.append(1)\n    raise OSError(str(calls))"
    )
    plugins = site.add("registrytest10", source).load()
    for _ in range(3):
        plugins.device_backends()
    assert problem(plugins, "registrytest10") == "flagperf_devices raised OSError: [1]"


def test_a_hook_that_is_not_asked_for_is_not_called(site: Site) -> None:
    source = f"{HEADER}@hookimpl\ndef flagperf_cases():\n    raise SystemExit('called')"
    plugins = site.add("registrytest11", source).load()
    assert plugins.device_backends() == []


def test_unknown_words_name_the_plugins_with_problems(site: Site) -> None:
    site.add("registrytest12", "raise OSError('broken')")
    with pytest.raises(BadInput, match=r"unknown cluster 'moon'; there are none .*registrytest12 1.0: .*: broken"):
        site.load().cluster("moon")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("CaseReference('a.b', Path('case.toml'))", "case.toml: its target is written module:function; got 'a.b'"),
        ("CaseReference(None, Path('case.toml'))", "case.toml: its target is written module:function; got None"),
        ("CaseReference('a:b', 'case.toml')", "the manifest of 'a:b' has to be a pathlib.Path; got 'case.toml'"),
    ],
)
def test_a_case_reference_of_the_wrong_form_is_a_problem_of_its_plugin(
    site: Site, reference: str, words: str, request: pytest.FixtureRequest
) -> None:
    name = f"registrytest14-{request.node.callspec.indices['reference']}"
    source = f"{HEADER}from pathlib import Path\n@hookimpl\ndef flagperf_cases():\n    return [{reference}]"
    plugins = site.add(name, source).load()
    assert plugins.cases() == {}
    assert words in problem(plugins, name.replace("-", "_"))


def test_a_manifest_is_read_once(site: Site, tmp_path: Path) -> None:
    own = load_plugins().case("distilbert").reference.manifest
    (tmp_path / "case.toml").write_text(own.read_text())
    reference = f"CaseReference('a:b', Path({str(tmp_path / 'case.toml')!r}))"
    source = f"{HEADER}from pathlib import Path\n@hookimpl\ndef flagperf_cases():\n    return [{reference}]"
    plugins = site.add("registrytest15", source).load()
    assert list(plugins.cases()) == ["distilbert"]
    (tmp_path / "case.toml").unlink()
    assert list(plugins.cases()) == ["distilbert"]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("precisions", "5"),
        ("memory_scope", "'moon'"),
        ("title", "['Acme']"),
        ("is_fallback", "'no'"),
        ("vendor", "b'x'"),
    ],
)
def test_an_attribute_of_another_type_than_the_contract_says_is_named(site: Site, attribute: str, value: str) -> None:
    name = f"registrytest9{attribute}"
    changed = f"""
_made = backend
backend = lambda word: type(word, (type(_made(word)),), dict({attribute}={value}))()
"""
    plugins = site.add(f"flagperf-{name}", device_source(name) + changed).load()
    words = f"flagperf_devices: {name}.{attribute} is not what the contract says"
    assert words in problem(plugins, f"flagperf_{name}")
    assert name not in [given.value.vendor for given in plugins.device_backends()]


# --- those that cannot be used, by name -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("1 / 0", PluginFailed, "cannot be imported: ZeroDivisionError"),
        ("FLAGPERF_HOOK_API = 99", BadInput, "it was written for HOOK_API 99, this flagperf "),
        (HEADER, BadInput, "it gives no device backend for this word"),
    ],
)
def test_an_adapter_that_is_named_and_cannot_be_used_says_why(
    site: Site, source: str, error: type[Exception], words: str, request: pytest.FixtureRequest
) -> None:
    word = f"registrytest20{request.node.callspec.indices['source']}"
    plugins = site.add(f"flagperf-{word}", source).load()
    for asked in (plugins.vendor_word, plugins.device_backend):
        with pytest.raises(error) as caught:
            asked(word)
        assert str(caught.value).startswith(f"vendor {word!r} cannot be used: flagperf-{word} 1.0: {words}")


def test_an_adapter_that_is_left_out_counts_as_not_installed_but_where_it_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGPERF_WITHOUT", "registrytest21")
    plugins = site.add("flagperf-registrytest21", "raise OSError").load()
    assert plugins.broken_adapters() == [] and plugins.case_problems() == []
    assert problem(plugins, "flagperf_registrytest21") == "it is left out by FLAGPERF_WITHOUT=registrytest21"
    with pytest.raises(BadInput, match=r"flagperf-registrytest21 1\.0: it is left out by FLAGPERF_WITHOUT="):
        plugins.vendor_word("registrytest21")
