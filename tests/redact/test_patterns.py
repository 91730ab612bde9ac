from __future__ import annotations

import pytest

from flagperf_publish.passing.identities import Findings, Pseudonyms, Replaced, identities_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("connect to 10.1.2.3:29500", ["10.1.2.3"]),
        ("[fd00:17::4]:22", ["fd00:17::4"]),
        ("fe80::1%eth0", ["fe80::1"]),
        ("2001:db8:0:0:0:0:0:1", ["2001:db8:0:0:0:0:0:1"]),
        ("card 0000:3B:00.0 fell off", ["0000:3B:00.0"]),
        ("00000000:3b:00.0", ["00000000:3b:00.0"]),
        ("GPU-5f3a9c2e-0b11-4d2a-9f00-0a1b2c3d4e5f", ["GPU-5f3a9c2e-0b11-4d2a-9f00-0a1b2c3d4e5f"]),
        ("a4:bf:01:2c:3d:4e", ["a4:bf:01:2c:3d:4e"]),
        ("guid e8eb:d303:00aa:bbcc", ["e8eb:d303:00aa:bbcc"]),
        ("ssh alice@gpu17", ["alice@gpu17"]),
        ("/home/alice/venv/bin/python", ["alice", "/home/alice/venv"]),
        ("file:///Users/bob.smith/x", ["bob.smith"]),
        ("/mnt/nfs/home/carol/y", ["carol"]),
        (r"C:\Users\carol\x, C:\\Users\\dave", ["carol", "dave"]),
        ("1c:00.0 3D controller, [AF:00.1]", ["1c:00.0", "AF:00.1"]),
        ("mac 0800.274e.66a1", ["0800.274e.66a1"]),
        ("Serial Number: PF2ABCDE", ["PF2ABCDE"]),
        ("    Serial Number                         : 1323921012345\n", ["1323921012345"]),
        ("S/N: 1323921012345, sn=MT2304X00123.", ["1323921012345", "MT2304X00123"]),
        ('{"serial": "SN-00419231"}', ["SN-00419231"]),
        ("exec /data/acme/venv/bin/python3.11 -m flagperf", ["/data/acme/venv"]),
    ],
)
def test_what_identifies(text: str, found: list[str]) -> None:
    assert [value for _, value in identities_in(text)] == found


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 and ::1 and 0.0.0.0",
        "at 09:44:52.940980747, 12:34:56",
        "std::vector, c10::Error, aten::add.Tensor",
        "torch 2.13.0+cpu, kernel 6.18.44-fc",
        "sha256 a88e5f8fab7d3f61d90a9b398325fe248c7f56ebcabe84ff993681457e38035f",
        "/root/x, /usr/lib/python3/dist-packages",
        "cpu:0, 1x8, 3:4",
        "PCI id 10de:20b0",
        "<object at 0x7f3a9c2e0b11>",
        "999.1.2.3",
        "12:00.0, at 09:12:00.0, 1:10.5, 3:04.0 min",
        "Serial Number: N/A, serial: none, Serial: disabled, S/N: 0, serial number: Not Specified, serial = 0.123456",
        r"C:\Users\Public and C:\Users\Default",
        "#!/usr/bin/python3, /usr/local/bin/python, /opt/conda/bin/python, bin/python",
    ],
)
def test_what_does_not(text: str) -> None:
    assert list(identities_in(text)) == []


def names(**values: str) -> Pseudonyms:
    return Pseudonyms([Replaced("host", pseudonym.replace("_", "-"), value) for pseudonym, value in values.items()])


def test_a_name_is_replaced_as_a_whole_word_only() -> None:
    given = names(host_1="node1", host_2="node12")
    assert given.text("node1 node12 node123 xnode1 node1-ib0 job_node12_log NODE1.local") == (
        "host-1 host-2 node123 xnode1 host-1-ib0 job_host-2_log host-1.local"
    )


def test_a_thousand_hosts_are_found_in_one_pass() -> None:
    given = Pseudonyms([Replaced("host", f"host-{n:04d}", f"rack{n // 40}-node{n:04d}") for n in range(4000)])
    assert (
        given.text("rack99-node3999: rack0-node0000 lost rack1-node9999") == "host-3999: host-0000 lost rack1-node9999"
    )


def test_a_pseudonym_is_not_replaced_again() -> None:
    assert names(host_1="alpha", host_2="host-1").text("alpha host-1") == "host-1 host-2"


@pytest.mark.parametrize(
    "text", ["alice@acme.example", "alice@node17", "alice@node17.acme.example", "bob@acme.example"]
)
def test_a_login_is_replaced_whole_where_its_user_or_host_is_known(text: str) -> None:
    findings = Findings()
    findings.add("user", "alice")
    findings.add("host", "node17")
    findings.search(f"ssh {text}")
    assert Pseudonyms(findings.replacements()).text(f"ssh {text} by alice") == "ssh login-1 by user-1"


def test_the_short_form_of_a_pci_address_is_that_of_a_known_one() -> None:
    findings = Findings()
    findings.add("pci", "0000:17:00.0")
    given = Pseudonyms(findings.replacements())
    assert given.text("17:00.0 and 0000:17:00.0 fell off") == "pci-2 and pci-1 fell off"
    times = "18:00.0, 09:17:00.0, 17:00.012, 17:00"
    assert given.text(times) == times


def test_of_two_values_that_share_letters_nothing_is_left() -> None:
    given = Pseudonyms(
        [Replaced("path", "path-1", "/data/x/alice"), Replaced("login", "login-1", "alice@acme.example")]
    )
    assert given.text("cp /data/x/alice@acme.example .") == "cp path-1login-1 ."


def test_short_names_and_the_domain_of_a_machine_are_found_too() -> None:
    findings = Findings()
    findings.add("host", "gpu17.lab.corp.example")
    findings.search("mounted from nas-3.lab.corp.example")
    given = Pseudonyms(findings.replacements())
    assert "gpu17" not in given.text("gpu17 and gpu17.lab.corp.example")
    assert given.text("on nas-3.lab.corp.example") == "on host-4"  # nas-3 by itself is host-3
    assert given.text("x.lab.corp.example") == "x.domain-1"


@pytest.mark.parametrize("value", ["N/A", "unknown", "", "localhost", "127.0.0.1"])
def test_what_is_the_same_everywhere_is_no_name(value: str) -> None:
    findings = Findings()
    findings.add("serial", value)
    assert findings.replacements() == ()


def test_words_that_are_in_every_text_are_replaced_in_their_own_field_alone() -> None:
    given = Pseudonyms([Replaced("setting", "setting-1", "debug"), Replaced("serial", "serial-1", "12")])
    assert given.text("debug 12") == "debug 12"
    assert (given.value("debug"), given.value("12")) == ("setting-1", "serial-1")
