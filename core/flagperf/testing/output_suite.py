"""Tests that every parser of a tool's output must pass: it reads what it knows and makes no figure of anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from flagperf.api import FIGURES
from flagperf.errors import UnknownLayout
from flagperf.testing.mutations import check_cut, check_forms
from flagperf.testing.suite import Recorded, Suite, shared_file, shared_folder

NONE_YET = [pytest.param(None, marks=pytest.mark.none_yet)]
"""An empty table of an adapter's suite: the plugin leaves its test out."""

Parse = Callable[[str], Sequence[Any]]
Cards = Mapping[str, Mapping[str, object]]
"""Some figures and properties of every card, by its device_id."""

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
    """One of smi.py's functions; None means every one of them."""
    text: str
    """The text, often a recorded output with one thing changed; see flagperf.testing.mutations.changed."""
    quoted: str = ""
    """The line or word of the text that the error must show."""


class OutputSuite(Suite):
    """Tests for the parsers, over the outputs of `rig.recorded` and the tables here. MemorySuite checks that recorded
    outputs are read exactly; here they are cut, damaged, and given to the other parsers."""

    variants: ClassVar[tuple[Recorded, ...]] = ()
    """Outputs with something special, often a recorded one with one thing changed, and exactly what they say."""
    refused: ClassVar[tuple[Refused, ...]] = ()
    """Texts that must not be read."""
    counted: ClassVar[tuple[Parse, ...]] = ()
    """Parsers of outputs that say how many rows they have, or where they end. They must refuse such an output whole if
    it is cut off."""
    captures: ClassVar[Mapping[str, Mapping[Parse, Cards]]] = {}
    """Real outputs that are not part of this package, in `transcripts/<vendor>` of a folder `shared` beside the
    repository: by name, what every card says to each parser. Files there that are not listed here must be refused."""

    @property
    def parsers(self) -> tuple[Parse, ...]:
        """Return all parsers of the tables."""
        of_tables: list[Recorded | Refused] = [*self.rig.recorded, *self.variants, *self.refused]
        of_captures = [parse for told in self.captures.values() for parse in told]
        found = dict.fromkeys([*(each.parse for each in of_tables), *of_captures])
        return tuple(parse for parse in found if parse is not None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test one entry of a table."""
        tables: dict[str, Sequence[Recorded | Refused]] = {
            "recorded": self.rig.recorded,
            "variant": self.variants,
            "refused": self.refused,
        }
        for name in tables.keys() & set(metafunc.fixturenames):
            ids = [f"{getattr(each.parse, '__name__', 'all')}-{at}" for at, each in enumerate(tables[name])]
            metafunc.parametrize(name, tables[name] or NONE_YET, ids=ids or None)
        if "capture" in metafunc.fixturenames:
            folder, place = shared_folder(metafunc.definition.path), f"transcripts/{self.rig.vendor}"
            here = (folder / place).glob("*.txt") if folder and self.captures else ()
            names = sorted({*self.captures, *(path.stem for path in here if not path.stem.endswith(".source"))})
            marked = [pytest.param(name, marks=pytest.mark.shared(f"{place}/{name}.txt")) for name in names]
            metafunc.parametrize("capture", marked or NONE_YET)

    def test_an_output_that_is_cut_off_anywhere_gives_whole_cells_or_an_error(self, recorded: Recorded) -> None:
        check_cut(recorded.parse, recorded.text, may_be_shorter=recorded.parse not in self.counted)

    def test_no_form_of_an_output_gives_a_wrong_figure(self, recorded: Recorded) -> None:
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
            assert list(told) == list(expected[parse])
            for card, figures in expected[parse].items():
                properties = getattr(told[card], "properties", {})
                read = {name: properties.get(name, getattr(told[card], name, None)) for name in figures}
                assert read == figures, card


def _refuse(parse: Parse, text: str) -> None:
    """Check that no figure is read. Readings without figures are fine if they give an error line as the reason."""
    try:
        readings = parse(text)
    except UnknownLayout:
        return
    figures = [getattr(reading, figure) for reading in readings for figure in FIGURES]
    assert readings and not [figure for figure in figures if figure is not None], f"{readings} were read in {text!r}"
    assert any(reading.missing for reading in readings), f"{readings} were read in {text!r}"
