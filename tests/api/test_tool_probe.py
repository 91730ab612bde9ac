"""ToolProbe: which of its queries it asks, and what becomes of those that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flagperf.api import Device, Machine, Query, Reading, Tool, ToolProbe
from flagperf.errors import ToolFailed, UnknownLayout
from flagperf.testing import Answer, MachineFolder, write_tool

CARD = Device("GPU-1", "A1", "A1", 0, uuid="GPU-1")


class FakeTool:
    """Each query asks `--<name>`; the parse function of a query gets the name back."""

    def __init__(self, answers: dict[str, Reading | str]) -> None:
        self.answers, self.asked = answers, list[str]()

    def query(self, name: str, *figures: str) -> Query:
        def parse(text: str) -> list[Reading]:
            self.asked.append(name)
            answer = self.answers[name]
            if isinstance(answer, str):
                raise ToolFailed(answer)
            return [answer]

        return Query((f"--{name}",), parse, figures)


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., Reading]:
    tool = tmp_path / "bin" / "acme-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho fine\n")
    tool.chmod(0o755)

    def sample(*asked: Query) -> Reading:
        class Probe(ToolProbe):
            vendor, name, tool, queries = "acme", "acme-smi", Tool(("acme-smi",)), asked

        probe = Probe()
        environ = {"PATH": str(tmp_path / "bin")}
        assert probe.available(MachineFolder(tmp_path / "root").machine(environ)).available
        return probe.sample([CARD], None)[0]

    return sample


def test_a_query_whose_figures_are_all_given_is_not_asked(sample: Callable[..., Reading]) -> None:
    fake = FakeTool({"all": Reading("GPU-1", 1, 2, power_watts=3.0), "power": Reading("GPU-1", power_watts=9.0)})
    assert sample(fake.query("all", "used_bytes"), fake.query("power", "power_watts")).power_watts == 3.0
    assert fake.asked == ["all"]


def test_a_figure_that_an_earlier_query_left_out_is_asked_for(sample: Callable[..., Reading]) -> None:
    first = Reading("GPU-1", 1, 2, missing={"power_watts": "it says N/A"})
    fake = FakeTool({"all": first, "power": Reading("GPU-1", power_watts=9.0)})
    reading = sample(fake.query("all", "used_bytes"), fake.query("power", "power_watts"))
    assert (reading.power_watts, reading.missing) == (9.0, {})
    assert fake.asked == ["all", "power"]


def test_of_two_queries_that_fail_the_first_reason_is_kept(sample: Callable[..., Reading]) -> None:
    fake = FakeTool({"memory": Reading("GPU-1", 1, 2), "better": "broken", "worse": "broken too"})
    reading = sample(
        fake.query("memory", "used_bytes"), fake.query("better", "power_watts"), fake.query("worse", "power_watts")
    )
    assert reading.missing["power_watts"] == "broken"


def test_the_first_query_must_answer(sample: Callable[..., Reading]) -> None:
    fake = FakeTool({"memory": "the driver went away", "power": Reading("GPU-1", power_watts=9.0)})
    with pytest.raises(ToolFailed, match="went away"):
        sample(fake.query("memory", "used_bytes"), fake.query("power", "power_watts"))
    assert fake.asked == ["memory"]


@pytest.mark.parametrize("path", ["", ":", "/no/such/folder:", ":/no/such/folder"])
def test_a_tool_of_the_current_folder_is_not_run(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "acme-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    machine = MachineFolder(tmp_path / "root").machine({"PATH": path})
    assert Tool(("acme-smi",), ("/opt/acme/bin",)).find(machine) is None


@pytest.mark.parametrize(("printed", "is_read"), [("fine", True), ("Error: no driver", False)])
def test_an_answer_that_can_be_read_counts_also_where_the_tool_ends_with_an_error(
    printed: str, is_read: bool, tmp_path: Path
) -> None:
    def parse(text: str) -> list[Reading]:
        if text.strip() != "fine":
            raise UnknownLayout("not the known words", text)
        return [Reading("GPU-1", 1, 2)]

    tool = Tool(("acme-smi",), (str(tmp_path),))
    write_tool(tmp_path, "acme-smi", [Answer(("--memory",), f"{printed}\n", "card 2 is lost", returncode=3)])
    machine, query = Machine(environ={"PATH": ""}), Query(("--memory",), parse, ("used_bytes",))
    if is_read:
        assert query.sample(tool, machine) == [Reading("GPU-1", 1, 2)]
    else:
        with pytest.raises(ToolFailed, match="acme-smi --memory ended with 3: card 2 is lost Error: no driver"):
            query.sample(tool, machine)
    with pytest.raises(ToolFailed, match="ended with 3"):
        query.ask(tool, machine)
