"""What every parser of a tool's output must do: read what is known, and make no figure of anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from flagperf.api import FIGURES
from flagperf.errors import UnknownLayout
from flagperf.testing.mutations import check_cut, check_forms
from flagperf.testing.suite import Recorded, Suite, shared_file, shared_folder

Parse = Callable[[str], Sequence[Any]]
Cards = Mapping[str, Mapping[str, object]]
"""Of every card, by its device_id, some of its figures and properties."""

NO_OUTPUTS = (
    "",
    "\n\n",
    "{}\n",
    "[]\n",
    "0 0 0\n",
    "====\n",
    "garbage \x00\xff\n",
    "bash: a-smi: command not found\n",
    "PARSE ERROR: Argument: -j\n             Couldn't find match for argument\n",
    "Sysfs error: No such file or directory\n",
    "<?xml version='1.0'?>\n<smi_log/>\n",
)


class Refused(msgspec.Struct, frozen=True):
    """A text that a parser must not read."""

    parse: Parse | None
    """One of smi.py's functions; None is every one of them."""
    text: str
    """Often a recorded output with one thing changed; see flagperf.testing.mutations.changed."""
    quoted: str = ""
    """What the error must show of it: the line or the word that differs."""


class OutputSuite(Suite):
    """Tests for the parsers, over the outputs of `rig.recorded` and the tables here. That recorded outputs are read
    exactly shows MemorySuite; here they are cut, damaged, and given to the other parsers."""

    variants: ClassVar[tuple[Recorded, ...]] = ()
    """Outputs with something special, often a recorded one with one thing changed, and exactly what they say."""
    refused: ClassVar[tuple[Refused, ...]] = ()
    """Texts that must not be read."""
    counted: ClassVar[tuple[Parse, ...]] = ()
    """Parsers of outputs that say how many rows they have, or where they end: cut off, these are refused as a whole."""
    captures: ClassVar[Mapping[str, Mapping[Parse, Cards]]] = {}
    """Real outputs that are not part of this package, in `transcripts/<vendor>` of a folder `shared` beside the
    repository: by name, what every card says to each parser. All that lies there and is not here is refused."""

    @property
    def parsers(self) -> tuple[Parse, ...]:
        """Those of the tables."""
        of_tables: list[Recorded | Refused] = [*self.rig.recorded, *self.variants, *self.refused]
        of_captures = [parse for told in self.captures.values() for parse in told]
        found = dict.fromkeys([*(each.parse for each in of_tables), *of_captures])
        return tuple(parse for parse in found if parse is not None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        tables: dict[str, Sequence[Recorded | Refused]] = {
            "recorded": self.rig.recorded,
            "variant": self.variants,
            "refused": self.refused,
        }
        for name in tables.keys() & set(metafunc.fixturenames):
            ids = [f"{getattr(each.parse, '__name__', 'all')}-{at}" for at, each in enumerate(tables[name])]
            metafunc.parametrize(name, tables[name], ids=ids)
        if "capture" in metafunc.fixturenames:
            metafunc.parametrize("capture", self._captures(metafunc.definition.path))

    def _captures(self, beside: Path) -> list[Any]:
        folder, place = shared_folder(beside), f"transcripts/{self.rig.vendor}"
        here = (folder / place).glob("*.txt") if folder and self.captures else ()
        names = sorted({*self.captures, *(path.stem for path in here if not path.stem.endswith(".source"))})
        return [pytest.param(name, marks=pytest.mark.shared(f"{place}/{name}.txt")) for name in names]

    def test_an_output_that_is_cut_off_anywhere_gives_whole_cells_or_an_error(self, recorded: Recorded) -> None:
        check_cut(recorded.parse, recorded.text, may_be_shorter=recorded.parse not in self.counted)

    def test_no_form_of_an_output_gives_a_wrong_figure(self, recorded: Recorded) -> None:
        """Forms that releases, locales, terminals and failing drivers make of it; see flagperf.testing.mutations."""
        check_forms(recorded.parse, recorded.text)

    def test_only_its_own_parser_reads_an_output(self, recorded: Recorded) -> None:
        for parse in self.parsers:
            if parse is not recorded.parse:
                _refuse(parse, recorded.text)

    @pytest.mark.parametrize("text", NO_OUTPUTS)
    def test_nothing_garbage_and_errors_are_refused(self, text: str) -> None:
        for parse in self.parsers:
            _refuse(parse, text)

    def test_an_output_with_something_special_is_read_exactly(self, variant: Recorded) -> None:
        assert tuple(variant.parse(variant.text)) == variant.readings

    def test_what_is_not_as_known_is_refused_and_quoted(self, refused: Refused) -> None:
        for parse in self.parsers if refused.parse is None else (refused.parse,):
            with pytest.raises(UnknownLayout) as raised:
                readings = parse(refused.text)
                pytest.fail(f"{parse.__name__} read {readings} in {refused.text!r}")
            said = str(raised.value)
            assert refused.quoted in said and not (refused.quoted and "-----" in said), said

    def test_a_captured_output_gives_what_it_says_to_its_own_parser(
        self, capture: str, request: pytest.FixtureRequest
    ) -> None:
        text = shared_file(str(request.path), f"transcripts/{self.rig.vendor}/{capture}.txt").read_text()
        expected = self.captures.get(capture, {})
        for parse in self.parsers:
            if parse not in expected:
                _refuse(parse, text)
                continue
            told = {str(getattr(each, "pid", each.device_id)): each for each in parse(text)}
            assert {card: _said(told.get(card), names) for card, names in expected[parse].items()} == expected[parse]
            assert list(told) == list(expected[parse])


def _said(reading: Any, names: Mapping[str, object]) -> dict[str, object]:
    """Return a reading's figures and properties of these names."""
    properties = getattr(reading, "properties", {})
    return {name: properties[name] if name in properties else getattr(reading, name, None) for name in names}


def _refuse(parse: Parse, text: str) -> None:
    """An error line of the tool may stand for any figure; then there is none, and it is the reason."""
    try:
        readings = parse(text)
    except UnknownLayout:
        return
    figures = [getattr(reading, figure) for reading in readings for figure in FIGURES]
    assert readings and not [figure for figure in figures if figure is not None], f"{readings} were read in {text!r}"
    assert any(reading.missing for reading in readings), f"{readings} were read in {text!r}"
