"""Where ranks meet, and the case's check of its data. Interfaces of this machine are given; sockets are real."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from flagperf.agent.node_checks import answer_rendezvous, check, interface_to, meeting_address
from flagperf.api import DataFile
from flagperf.errors import NodeFailed
from flagperf.spec.protocol import CheckAnswer, CheckRequest, RendezvousAnswer, RendezvousRequest

LO = {"lo": ["127.0.0.1"]}
TWO = {**LO, "eth0": ["10.0.0.7"], "eth1": ["2001:db8::7", "10.1.0.7"]}


@pytest.fixture(autouse=True)
def _no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)


def has(monkeypatch: pytest.MonkeyPatch, interfaces: dict[str, list[str]], down: tuple[str, ...] = ()) -> None:
    """The addresses of 127.0.0.0/8 are all this machine's, so that ports can be found on them."""

    def family(address: str) -> int:
        return socket.AF_INET6 if ":" in address else socket.AF_INET if "." in address else socket.AF_PACKET

    addresses = {
        name: [SimpleNamespace(family=family(each), address=each) for each in given]
        for name, given in interfaces.items()
    }
    states = {name: SimpleNamespace(isup=name not in down) for name in interfaces}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)


def meet(**request: str) -> str:
    """The address, where its port was free."""
    answer = io.BytesIO()
    assert answer_rendezvous(msgspec.json.encode(RendezvousRequest(**request)), io.BytesIO(), answer) == 0
    place = msgspec.json.decode(answer.getvalue(), type=RendezvousAnswer)
    with socket.socket(socket.AF_INET6 if ":" in place.address else socket.AF_INET) as listener:
        listener.bind((place.address, place.port))
    return place.address


def refusal(**request: str) -> str:
    with pytest.raises(NodeFailed) as caught:
        meet(**request)
    return str(caught.value)


def test_the_interface_that_is_given_goes_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, {**LO, "ib0": ["aa:bb", "127.0.0.9", "127.0.0.10"]})
    assert meet(interface="ib0", address="127.0.0.1") == "127.0.0.9"


def test_an_interface_that_is_not_there_is_named_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**LO, "eth0": ["10.0.0.7"], "ib0": ["10.1.0.7"], "ib1": ["00:11"], "ib2": ["fe80::1%ib2"]}
    has(monkeypatch, given, down=("ib0",))
    for name in ("ib0", "ib1", "ib2", "ib7"):
        there = f"no interface {name!r} with an address; there are lo (127.0.0.1), eth0 (10.0.0.7)"
        assert refusal(interface=name) == there


def test_an_address_that_the_cluster_knows_is_taken_and_a_name_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, {**LO, "eth0": ["10.0.0.7"]})
    assert meet(address="127.0.0.5") == "127.0.0.5"
    assert refusal(address="192.0.2.1").startswith("192.0.2.1 is not an address of this node: ")
    assert meeting_address(RendezvousRequest("localhost")) == "10.0.0.7"  # the only one outside


def test_else_it_is_the_address_by_which_the_command_came(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, TWO)
    monkeypatch.setenv("SSH_CONNECTION", "10.1.0.1 50022 10.1.0.7 22")
    assert meeting_address(RendezvousRequest("node7")) == "10.1.0.7"


@pytest.mark.parametrize("came_by", ["UNKNOWN", "::1 50022 ::1 22", "127.0.0.1 50022 127.0.0.1 22", "a b c d"])
def test_what_is_not_clear_is_asked_for(monkeypatch: pytest.MonkeyPatch, came_by: str) -> None:
    """Also after a tunnel, whose addresses belong to no other node, and without a network."""
    monkeypatch.setenv("SSH_CONNECTION", came_by)
    for interfaces, there in ((TWO, "lo (127.0.0.1), eth0 (10.0.0.7), eth1 (10.1.0.7)"), (LO, "lo (127.0.0.1)")):
        has(monkeypatch, interfaces)
        assert refusal() == f"which address the nodes reach this one by is not clear: {there}; give --interface"


def test_the_interface_to_the_first_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interface_to("127.0.0.1") == ""  # gloo finds it by itself

    def unreachable(*_: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", type("NoWay", (socket.socket,), {"connect": unreachable}))
    with pytest.raises(NodeFailed, match=r"^no way to the first node, 192\.0\.2\.1: Network is unreachable$"):
        interface_to("192.0.2.1")


def look(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> CheckAnswer:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    return check(CheckRequest(f"{name}:check_files", str(folder), {"rows": 3}))


def test_the_case_names_its_files_or_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "from flagperf.api import DataFile\n"
        "def check_files(data_dir, values):\n    return [DataFile(data_dir.name, values['rows'], 'abc')]"
    )
    refuses = "from flagperf.errors import BadInput\ndef check_files(*_):\n    raise BadInput('no rows; get some')"
    assert look(tmp_path, monkeypatch, "names", names) == CheckAnswer((DataFile(tmp_path.name, 3, "abc"),))
    assert look(tmp_path, monkeypatch, "refuses", refuses) == CheckAnswer(problem="no rows; get some")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def check_files(*_):\n    return 1 / 0", "ZeroDivisionError: division by zero ({folder}/{name}.py line 2)"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("def check_file(*_): ...", "AttributeError: module '{name}' has no attribute 'check_files'"),
        ("def check_files(data_dir): ...", "TypeError: check_files() takes 1 positional argument"),
        ("def check_files(*_): return ['train.tsv']", "ValidationError: Expected `object`, got `str`"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
    ],
)
def test_a_check_that_fails_is_one_message_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, source: str, words: str
) -> None:
    name = f"checktest_{request.node.callspec.indices['source']}"
    found = look(tmp_path, monkeypatch, name, source)
    assert found.problem.startswith(f"{name}:check_files, the case's check of its data, failed: ")
    assert words.format(folder=tmp_path, name=name) in found.problem
    assert found.files == ()
