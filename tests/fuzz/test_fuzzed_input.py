"""Command lines and flagperf.toml that nobody means: one message, a documented exit code, nothing left behind."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from fuzz_harness import check, run
from hostile import TEXTS, TOML_FILES, TOML_VALUES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flagperf.cli import COMMANDS

PLAN = ["plan", "distilbert", "--device-model", "C500"]
"""The whole path of the values, without a node that would have to be asked."""

COMMAND_LINES = (
    ["runs", "list", "--runs-dir", "?"],
    *(["runs", verb, "?"] for verb in ("show", "verify", "path", "curve", "sign")),
    ["runs", "show", "latest", "--runs-dir", "?"],
    ["runs", "verify", "latest", "--signers", "?"],
    ["report", "?"],
    ["report", "?", "--format", "md", "--reference", "?"],
    ["align", "?", "?"],
    ["run", "distilbert", "--runs-dir", "?", "--set", "no=1"],
    ["plan", "distilbert", "--data-dir", "?", "--set", "no=1"],
    ["plan", "?"],
    ["cases", "show", "?"],
    [*PLAN, "--config", "?"],
    [*PLAN, "--vendor", "?"],
    [*PLAN, "--profile", "?"],
    [*PLAN, "--precision", "?"],
    [*PLAN, "--set", "?"],
    [*PLAN, "--set", "?=1"],
    [*PLAN, "--set", "training.seed=?"],
    [*PLAN, "--nodes", "?"],
    [*PLAN, "--timeout", "?"],
    ["plan", "llama2_70b", "--device-model", "C500", "--parallel", "?"],
    ["plan", "distilbert", "--device-model", "?"],
    ["plan", "distilbert", "--cluster", "?"],
    ["completion", "?"],
    ["?"],
    ["runs", "?"],
    ["runs", "list", "--?"],
    ["runs", "list", "-?"],
)

fuzzed = settings(
    max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLAGPERF_RUNS_DIR", raising=False)
    return tmp_path


@pytest.mark.parametrize("line", COMMAND_LINES, ids=" ".join)
def test_every_text_in_every_place_is_answered(line: list[str], here: Path) -> None:
    for text in TEXTS:
        check([word.replace("?", text) for word in line])
    assert list(here.iterdir()) == []


@fuzzed
@given(
    st.lists(
        st.sampled_from(
            [*COMMANDS, "list", "show", "verify", "latest", "distilbert", "--json", "-q", "--set", "--help", "=", "--"]
        )
        | st.text(max_size=20),
        max_size=6,
    ).filter(lambda words: not {"run", "env", "devices", "vendors", "import"} & {*words} and "\0" not in "".join(words))
)
def test_words_in_any_order_are_answered(words: list[str]) -> None:
    """Without those that ask the machine, and `import`, which has a message for each page."""
    if not {"plan", "distilbert"} <= {*words}:
        check(words)


@pytest.mark.parametrize("key", ["model.layers", "training.learning_rate", "precision", "training.optimizer"])
def test_every_value_of_every_type_is_answered(key: str) -> None:
    for value in TOML_VALUES:
        check([*PLAN, "--set", f"{key}={value}"])


def test_a_number_beyond_64_bits_is_named() -> None:
    printed = run(["plan", "distilbert", "--set", "model.layers=9223372036854775808"])
    assert printed.code == 2
    assert printed.err == (
        "flagperf: --set model.layers: a whole number is beyond 64 bits; got '9223372036854775808'\n"
    )


def test_a_long_argument_is_cut() -> None:
    printed = run(["cases", "show", "x" * 100_000])
    assert "xxx...(99,6" in printed.err and len(printed.err) < 1_000


@pytest.mark.parametrize("number", range(len(TOML_FILES)))
def test_every_file_of_the_corpus_is_answered(number: int) -> None:
    Path("flagperf.toml").write_bytes(TOML_FILES[number])
    check(PLAN, of=f"file {number}")


_tables = st.recursive(
    st.none() | st.sampled_from(TOML_VALUES[:13]),
    lambda inner: st.dictionaries(
        st.sampled_from(["cases", "environment", "distilbert", "training", "seed", "network"]) | st.text(max_size=5),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)


@fuzzed
@given(_tables, st.integers(0, 400))
@example({"cases": {"distilbert": {"training": {"seed": "1"}}}}, 400)
def test_tables_of_any_shape_are_answered(tables: object, length: int) -> None:
    text = "".join(_lines(tables, ()))
    Path("flagperf.toml").write_text(text[: length * len(text) // 400], encoding="utf-8", errors="replace")
    check(PLAN, of=text)


def _lines(value: object, place: tuple[str, ...]) -> list[str]:
    if isinstance(value, dict):
        return list(itertools.chain.from_iterable(_lines(inner, (*place, key)) for key, inner in value.items()))
    dotted = ".".join('"' + key.replace("\\", "").replace('"', "") + '"' for key in place)
    return [f"{dotted} = {value}\n"] if place and value is not None else []


NOT_FILES = {
    "pipe": "flagperf.toml is a pipe, not a regular file",
    "folder": "flagperf.toml is a folder, not a regular file",
    "/dev/zero": "flagperf.toml is a device, not a regular file",
    "nowhere": "cannot read flagperf.toml (it is a link): No such file or directory",
    "flagperf.toml": "cannot read flagperf.toml (it is a link): Too many levels of symbolic links",
}


@pytest.mark.parametrize("kind", NOT_FILES)
def test_a_user_file_that_is_no_file_is_neither_read_nor_ignored(kind: str, here: Path) -> None:
    path = here / "flagperf.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(kind)
    printed = check(PLAN)
    assert printed.code == 2 and NOT_FILES[kind] in printed.err


def test_a_link_to_a_users_own_file_is_followed(here: Path) -> None:
    (here / "mine").write_text("[cases.distilbert.training]\nseed = 7\n")
    (here / "flagperf.toml").symlink_to("mine")
    assert "file flagperf.toml" in check(PLAN).out
