"""Which queries are put to a tool, by a probe and by discovery, and what becomes of those that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flagperf.api import FIGURES, Device, Machine, Reading
from flagperf.errors import ToolFailed, ToolSilent, UnknownLayout
from flagperf.kit import Query, Tool, ToolProbe, ask_all, ask_any, ask_first
from flagperf.testing import Answer, MachineFolder, write_tool

CARD = Device("GPU-1", "A1", "A1", 0, uuid="GPU-1")


class FakeTool:
    """Each query asks `--<name>`; the parse function of a query gets the name back."""

    def __init__(self, answers: dict[str, Reading | ToolFailed]) -> None:
        self.answers, self.asked = answers, list[str]()

    def query(self, name: str, *figures: str) -> Query:
        def parse(text: str) -> list[Reading]:
            self.asked.append(name)
            answer = self.answers[name]
            if isinstance(answer, ToolFailed):
                raise answer
            return [answer]

        return Query((f"--{name}",), parse, figures)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    write_tool(tmp_path / "bin", "acme-smi", [Answer(("*",), "fine")])
    return MachineFolder(tmp_path / "root").machine({"PATH": str(tmp_path / "bin")})


ACME_SMI = Tool(("acme-smi",))


@pytest.fixture
def sample(machine: Machine) -> Callable[..., Reading]:
    def sample(*asked: Query) -> Reading:
        class Probe(ToolProbe):
            vendor, name, tool, queries = "acme", "acme-smi", ACME_SMI, asked

        probe = Probe()
        assert probe.available(machine).available
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
    fake = FakeTool({"memory": Reading("GPU-1", 1, 2), "better": ToolFailed("broken"), "worse": ToolFailed("also")})
    reading = sample(
        fake.query("memory", "used_bytes"), fake.query("better", "power_watts"), fake.query("worse", "power_watts")
    )
    assert reading.missing["power_watts"] == "broken"


def test_a_tool_that_hangs_is_not_asked_again_within_the_sample(sample: Callable[..., Reading]) -> None:
    gone = FakeTool({"memory": ToolFailed("the driver went away")})
    with pytest.raises(ToolFailed, match="went away"):  # the first query must answer
        sample(gone.query("memory", "used_bytes"), gone.query("power", "power_watts"))
    assert gone.asked == ["memory"]
    hung = ToolSilent("acme-smi did not end within 10 s")
    fake = FakeTool({"memory": Reading("GPU-1", 1, 2), "power": hung, "heat": Reading("GPU-1")})
    reading = sample(
        fake.query("memory", "used_bytes"),
        fake.query("power", "power_watts"),
        fake.query("heat", "temperature_celsius"),
    )
    assert fake.asked == ["memory", "power"]
    assert (reading.used_bytes, reading.total_bytes) == (1, 2)
    assert reading.missing == dict.fromkeys(FIGURES[2:], str(hung))


@pytest.mark.parametrize("program", ["#!/bin/sh\nexec sleep 3600\n", "no program"])
def test_a_tool_that_cannot_be_started_or_does_not_end_is_silent(program: str, tmp_path: Path) -> None:
    (tmp_path / "acme-smi").write_text(program)
    (tmp_path / "acme-smi").chmod(0o755)
    tool = Tool(("acme-smi",), (str(tmp_path),), timeout_seconds=0.1)
    with pytest.raises(ToolSilent):
        tool.run(Machine(environ={"PATH": ""}), ())


# Discovery


def test_discovery_adds_what_later_queries_say_of_the_cards_that_the_first_one_lists(machine: Machine) -> None:
    listed, more = (
        Reading("0", properties={"name": "A1"}),
        Reading("0", 1, 2, properties={"name": "?", "uuid": "GPU-1"}),
    )
    fake = FakeTool({"list": listed, "memory": more, "other": Reading("7", 3, 4)})
    queries = [fake.query("list"), fake.query("memory", "used_bytes"), fake.query("other")]
    assert ask_all(ACME_SMI, machine, queries) == [Reading("0", 1, 2, properties={"name": "A1", "uuid": "GPU-1"})]


def test_a_later_query_that_fails_removes_no_card(machine: Machine) -> None:
    fake = FakeTool({"list": Reading("0"), "memory": ToolFailed("broken"), "power": Reading("0", power_watts=9.0)})
    queries = [fake.query("list"), fake.query("memory", "used_bytes"), fake.query("power")]
    assert ask_all(ACME_SMI, machine, queries) == [Reading("0", power_watts=9.0, missing={"used_bytes": "broken"})]


@pytest.mark.parametrize(
    ("first", "asked", "answer"),
    [
        (ToolFailed("an old release"), ["new", "old"], [Reading("0", 1, 2)]),
        (ToolSilent("hung"), ["new"], []),
        (Reading("0", 3, 4), ["new"], [Reading("0", 3, 4)]),
    ],
)
def test_what_is_only_good_to_know_comes_from_the_first_query_that_answers(
    first: Reading | ToolFailed, asked: list[str], answer: list[Reading], machine: Machine
) -> None:
    fake = FakeTool({"new": first, "old": Reading("0", 1, 2)})
    assert ask_first(ACME_SMI, machine, [fake.query("new"), fake.query("old")]) == answer
    assert fake.asked == asked


def test_the_next_way_is_asked_where_the_first_query_of_one_fails(machine: Machine) -> None:
    fake = FakeTool({"new": UnknownLayout("new", "?"), "old": Reading("0", 1, 2), "more": ToolFailed("no more")})
    ways = ([fake.query("new"), fake.query("more")], [fake.query("old"), fake.query("more")])
    (reading,) = ask_any(ACME_SMI, machine, *ways)
    assert reading.used_bytes == 1 and fake.asked == ["new", "old", "more"]
    with pytest.raises(UnknownLayout, match="new"):
        ask_any(ACME_SMI, machine, [fake.query("new")], [fake.query("more")])


def test_a_tool_that_hangs_is_not_asked_again_in_discovery(machine: Machine) -> None:
    fake = FakeTool({"list": Reading("0"), "memory": ToolSilent("hung"), "power": Reading("0", power_watts=9.0)})
    (card,) = ask_all(ACME_SMI, machine, [fake.query("list"), fake.query("memory"), fake.query("power")])
    assert fake.asked == ["list", "memory"] and card.missing["power_watts"] == "hung"
    for ask in (ask_all, lambda tool, machine, both: ask_any(tool, machine, both[:1], both[1:])):
        fake.asked.clear()
        with pytest.raises(ToolSilent, match="hung"):
            ask(ACME_SMI, machine, [fake.query("memory"), fake.query("list")])
        assert fake.asked == ["memory"]


def test_a_figure_that_an_answer_leaves_out_says_which_call_did(sample: Callable[..., Reading]) -> None:
    fake = FakeTool({"memory": Reading("GPU-1", 1)})
    reading = sample(fake.query("memory", "used_bytes", "total_bytes"))
    assert (reading.used_bytes, reading.missing["total_bytes"]) == (1, "acme-smi --memory did not give it")


# Calls


@pytest.mark.parametrize("path", ["", ":", "/no/such/folder:", ":/no/such/folder"])
def test_a_tool_of_the_current_folder_is_not_run(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "acme-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    machine = MachineFolder(tmp_path / "root").machine({"PATH": path})
    assert Tool(("acme-smi",), ("/opt/acme/bin",)).find(machine) is None


@pytest.mark.parametrize("code", [0, 15])
def test_cards_that_the_tool_names_on_stderr_are_read_beside_the_others(code: int, tmp_path: Path) -> None:
    def parse(text: str) -> list[Reading]:
        return [Reading(line, properties={"problem": "lost"} if "lost" in line else {}) for line in text.splitlines()]

    tool, machine = Tool(("acme-smi",), (str(tmp_path),)), Machine(environ={"PATH": ""})
    write_tool(tmp_path, "acme-smi", [Answer(("-L",), "card 1\n", "card 1\ncard 2 is lost\n", returncode=code)])
    query = Query(("-L",), parse, (), parse)
    assert [reading.device_id for reading in query.ask(tool, machine)] == ["card 2 is lost", "card 1"]
    assert query.sample(tool, machine) == query.ask(tool, machine)


@pytest.mark.parametrize("stdout", ["none\n", "another card: 1\n"])
def test_where_stdout_says_none_the_lost_cards_of_stderr_are_all_and_another_form_stays_unknown(
    stdout: str, tmp_path: Path
) -> None:
    def lost(text: str) -> list[Reading]:
        return [Reading(line, properties={"problem": "lost"}) for line in text.splitlines() if "lost" in line]

    def parse(text: str) -> list[Reading]:
        if not lost(text) or not text.endswith("none\n"):
            raise UnknownLayout("not the known words", text)
        return lost(text)

    tool, machine = Tool(("acme-smi",), (str(tmp_path),)), Machine(environ={"PATH": ""})
    write_tool(tmp_path, "acme-smi", [Answer(("-L",), stdout, "card 1 is lost")])
    query = Query(("-L",), parse, (), lost)
    if stdout == "none\n":
        assert [reading.device_id for reading in query.ask(tool, machine)] == ["card 1 is lost"]
    else:
        with pytest.raises(UnknownLayout, match="'another card: 1'; on stderr: 'card 1 is lost'"):
            query.ask(tool, machine)


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
