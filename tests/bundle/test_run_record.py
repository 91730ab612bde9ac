"""environment.json has what nodes have in common once; tags and a note lie beside the sealed files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from recorded_bundles import recorded_bundle

from flagperf.api import Device, Presence
from flagperf.bundle.bundle import create_bundle, read_bundle
from flagperf.bundle.paths import LABELS_FILE
from flagperf.bundle.run_record import Labels, checked_tag, read_labels, write_labels
from flagperf.bundle.verify import verify_bundle
from flagperf.errors import BadInput
from flagperf.spec.node_facts import Environment, Fact, NodeFacts, VendorFacts
from run_builders import make_run

LINUX = Environment({"os": Fact("Debian 12"), "kernel": Fact("6.1")}, {"torch": "2.6"}, {})
OTHER = Environment({"os": Fact("Debian 12"), "kernel": Fact("6.2")}, {"torch": "2.6"}, {})
ABSENT = VendorFacts("acme", "flagperf-acme 1.0", Presence("absent", (), "no device node"))


def node(index: int, environment: Environment = LINUX) -> NodeFacts:
    """With a card of its own."""
    card = Device(f"GPU-{index}", "Card A", "A", 0, 1 << 34)
    own = VendorFacts("other", "flagperf-other 1.0", Presence("present", ("a tool",), ""), devices=(card,))
    return NodeFacts(f"node-{index}", environment, (ABSENT, own), 8)


def bundle_of(folder: Path, *nodes: NodeFacts) -> Path:
    return create_bundle(folder, make_run("20260101T000000Z-demo-cpu-1x1-abc123"), nodes)


def test_equal_facts_are_written_once_and_shared(tmp_path: Path) -> None:
    nodes = (node(0), node(1), node(2, OTHER), node(3, OTHER))
    bundle = bundle_of(tmp_path, *nodes)
    written = json.loads((bundle / "environment.json").read_text())
    assert [each["environment"] if isinstance(each["environment"], int) else "own" for each in written] == [
        "own", 0, "own", 2
    ]  # fmt: skip
    assert [each["vendors"][0] for each in written[1:]] == [0, 0, 0]
    assert [each["vendors"][1]["devices"][0]["id"] for each in written] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    read = read_bundle(bundle).nodes
    assert read == nodes
    assert read[1].environment is read[0].environment and read[3].vendors[0] is read[0].vendors[0]


def test_the_facts_of_one_node_have_the_form_of_node_facts(tmp_path: Path) -> None:
    """Also where every node has all its facts."""
    bundle = bundle_of(tmp_path, node(0))
    assert json.loads((bundle / "environment.json").read_text()) == json.loads(msgspec.json.encode([node(0)]))
    (bundle / "environment.json").write_bytes(msgspec.json.encode([node(0), node(1)]))
    assert read_bundle(bundle).nodes == (node(0), node(1))


@pytest.mark.parametrize(
    ("environment", "vendors", "why"),
    [
        (1, [], "node 1 refers to node 1, which is not an earlier one"),
        (-1, [], "node 1 refers to node -1, which is not an earlier one"),
        (0, [7], "node 1 refers to node 7, which is not an earlier one"),
        (0, [0, 0, 0], "index out of range"),
        (None, [], "Expected `object`, got `null`"),
        (0, None, "not iterable"),
    ],
)
def test_a_reference_to_nothing_is_refused(tmp_path: Path, environment: object, vendors: object, why: str) -> None:
    bundle = bundle_of(tmp_path, node(0))
    first, second = msgspec.to_builtins(node(0)), msgspec.to_builtins(node(1))
    changed = [first, {**second, "environment": environment, "vendors": vendors}]
    (bundle / "environment.json").write_text(json.dumps(changed))
    with pytest.raises(BadInput, match=f"environment.json is not a valid run record: .*{why}"):
        read_bundle(bundle)


# --- tags and a note --------------------------------------------------------------------------------------------------


RECORDED = recorded_bundle("distilbert")


def test_a_run_with_labels_still_verifies(tmp_path):
    bundle = Path(shutil.copytree(RECORDED, tmp_path / RECORDED.name))
    assert read_labels(bundle) == Labels()
    labels = Labels(("baseline", "driver-2.31"), "after the new driver\n\x1b[31m")
    write_labels(bundle, labels)
    assert read_labels(bundle) == labels
    assert verify_bundle(bundle).problems == ()


def test_labels_that_were_taken_back_leave_no_file(tmp_path):
    write_labels(tmp_path, Labels(("a",)))
    write_labels(tmp_path, Labels())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tags": "a"}', b"[" * 100_000, b"\xff"])
def test_a_file_that_is_not_ours_is_named(tmp_path, content):
    (tmp_path / LABELS_FILE).write_bytes(content)
    with pytest.raises(BadInput, match=r"labels\.json"):
        read_labels(tmp_path)


@pytest.mark.parametrize("word", ["", "a b", "-x", "x" * 65, "a/b", "a,b", "\x1b"])
def test_a_word_that_is_no_tag(word):
    with pytest.raises(BadInput, match="is not a tag"):
        checked_tag(word)


def test_a_tag_may_have_letters_of_any_language():
    assert checked_tag("沐曦-2.31") == "沐曦-2.31"
