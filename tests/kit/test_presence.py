from __future__ import annotations

import pytest

from flagperf.kit import Evidence, judge

BUS, NODES, MODULES, TOOLS = ("PCI 0000:07:00.0",), ("/dev/acme0",), ("module acme",), ("/opt/acme/bin/acme-smi",)


@pytest.mark.parametrize(
    ("evidence", "state", "words"),
    [
        (Evidence(BUS, NODES), "present", ""),
        (Evidence(BUS, NODES, MODULES, TOOLS), "present", ""),
        (Evidence(BUS), "partial", "its device node is not here"),
        (Evidence(BUS, (), MODULES, TOOLS), "partial", "its device node is not here"),
        (Evidence((), NODES, MODULES), "present", "not among the known cards on the bus"),
        (Evidence((), NODES), "partial", "no known card on the bus and no kernel module"),
        (Evidence((), NODES, (), TOOLS), "partial", "no known card on the bus"),
        (Evidence((), (), MODULES), "partial", "no card on the bus and no device node"),
        (Evidence((), (), (), TOOLS), "absent", "looked for acme cards; found only /opt/acme/bin/acme-smi"),
        (Evidence(), "absent", "looked for acme cards"),
    ],
)
def test_evidence_decides(evidence: Evidence, state: str, words: str) -> None:
    presence = judge(evidence, "acme cards")
    assert presence.state == state
    assert words in presence.reason
    if state != "absent":
        assert presence.evidence == (*evidence.bus, *evidence.nodes, *evidence.modules, *evidence.tools)
