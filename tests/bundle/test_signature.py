"""Signatures by the real ssh-keygen, with keys made here."""

from __future__ import annotations

import errno
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagperf.bundle import signature
from flagperf.bundle.bundle import (
    file_digests,
    seal,
    write_manifest,
)
from flagperf.cli import run_cli
from flagperf.errors import BadInput
from test_verify import make_bundle

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")

RUN_ID = "20260101T000000Z-demo-cpu-1x1-abc123"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the keys nor the agent of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "runs")


def make_key(folder: Path, name: str, passphrase: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", str(key)], check=True)
    return key


def signers_of(key: Path, who: str = "alice@example.com", options: str = "") -> Path:
    path = key.with_suffix(".signers")
    path.write_text(f"{who} {options} {key.with_suffix('.pub').read_text()}")
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "keys", "alice")


def sign(bundle: Path, key: Path) -> None:
    assert run_cli(["runs", "sign", str(bundle), "--key", str(key)]) == 0


def verify(bundle: Path, signers: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capfd.readouterr()
    code = run_cli(["runs", "verify", str(bundle), "--signers", str(signers)])
    printed = capfd.readouterr()
    return code, printed.out + printed.err


def test_a_signed_run_verifies_and_names_its_signer(bundle: Path, key: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sign(bundle, key)
    assert capfd.readouterr().out == f"{bundle}/MANIFEST.sig\n"
    code, printed = verify(bundle, signers_of(key), capfd)
    assert code == 0
    assert printed.startswith("signed by alice@example.com (ED25519 SHA256:")
    assert f"{RUN_ID}: verified: " in printed
    assert run_cli(["runs", "verify", str(bundle)]) == 0
    assert "MANIFEST.sig was not checked; --signers FILE does" in capfd.readouterr().out
    sign(bundle, make_key(key.parent, "bob"))  # replaces the first
    assert verify(bundle, signers_of(key), capfd)[0] == 3


def test_whoever_rewrites_every_hash_still_lacks_the_key(
    bundle: Path, key: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The parent's file too: without a signature, that verifies."""
    sign(bundle, key)
    events = bundle / "events" / "parent.jsonl"
    first, *others, _sealed = events.read_text().splitlines(keepends=True)
    events.write_text("".join([first.replace('"pid":', '"pid":1'), *others]))
    seal(bundle)
    assert run_cli(["runs", "verify", str(bundle)]) == 0
    code, printed = verify(bundle, signers_of(key), capfd)
    assert code == 3
    assert "MANIFEST.sig is not a signature of this MANIFEST: " in printed


@pytest.mark.parametrize(
    ("options", "who", "words"),
    [
        ("", "bob", "signed with the key ED25519 SHA256:"),
        ('namespaces="git"', "alice", "does not allow to: "),
        ('valid-before="20200101"', "alice", "does not have, or not for today: "),
    ],
)
def test_a_key_that_may_not_sign_is_named(
    bundle: Path, key: Path, options: str, who: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sign(bundle, key)
    listed = key if who == "alice" else make_key(key.parent, who)
    code, printed = verify(bundle, signers_of(listed, options=options), capfd)
    assert code == 3
    assert words in printed and "not verified: 1 problem" in printed


def test_a_missing_or_damaged_signature_is_a_problem(
    bundle: Path, key: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert verify(bundle, signers_of(key), capfd)[0] == 3
    assert "MANIFEST.sig is missing: the bundle is not signed" in verify(bundle, signers_of(key), capfd)[1]
    for content in (b"", b"\x1b]52;c;aGk=\x07", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"):
        (bundle / "MANIFEST.sig").write_bytes(content)
        code, printed = verify(bundle, signers_of(key), capfd)
        assert code == 3 and "MANIFEST.sig is not a signature of this MANIFEST" in printed


def test_a_signature_for_something_else_is_none(bundle: Path, key: Path, capfd: pytest.CaptureFixture[str]) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "git", str(bundle / "MANIFEST")],
        check=True,
        capture_output=True,
    )
    code, printed = verify(bundle, signers_of(key), capfd)
    assert code == 3 and "MANIFEST.sig is not a signature of this MANIFEST" in printed


def test_a_file_of_signers_that_cannot_be_read_is_bad_input(
    bundle: Path, key: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sign(bundle, key)
    os.mkfifo(bundle.parent / "pipe")
    assert verify(bundle, Path("nowhere"), capfd) == (
        2,
        "flagperf: cannot read the file of signers nowhere: No such file or directory\n",
    )
    assert verify(bundle, bundle.parent / "pipe", capfd)[0] == 2


def test_what_does_not_verify_is_not_signed(bundle: Path, key: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (bundle / "environment.json").write_text("[ ]")
    write_manifest(bundle, file_digests(bundle))
    assert run_cli(["runs", "sign", str(bundle), "--key", str(key)]) == 2
    assert "is not verified, so it is not signed: environment.json has changed" in capfd.readouterr().err
    assert not (bundle / "MANIFEST.sig").exists()


def test_the_usual_key_is_the_default(bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["runs", "sign", str(bundle)]) == 2
    assert f"there is no key in {tmp_path}/home/.ssh; give one with --key FILE" in capfd.readouterr().err
    assert run_cli(["runs", "sign", str(bundle), "--key", "nowhere"]) == 2
    assert "nowhere is not a key file" in capfd.readouterr().err
    usual = make_key(tmp_path / "home" / ".ssh", "id_ed25519")
    assert run_cli(["runs", "sign", str(bundle)]) == 0
    assert verify(bundle, signers_of(usual), capfd)[0] == 0


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("write_atomically", 3, "MANIFEST.sig: Read-only file system"),
        ("tempfile.TemporaryDirectory", 3, "cannot write a temporary file: Read-only file system; free disk space"),
        ("read_regular", 2, "MANIFEST: Read-only file system"),
    ],
)
def test_files_that_cannot_be_read_or_written_are_one_message(
    bundle: Path,
    key: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    code: int,
    words: str,
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(f"flagperf.bundle.signature.{function}", fail)
    assert run_cli(["runs", "sign", str(bundle), "--key", str(key)]) == code
    told = capfd.readouterr().err
    assert words in told and told.count("\n") == 1


def test_a_folder_of_keys_that_cannot_be_searched_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(BadInput, match="there is no key in"):
        signature.usual_key()


def test_without_ssh_keygen_it_is_said_what_to_install(
    bundle: Path, key: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(bundle, key)
    monkeypatch.setenv("PATH", "/nowhere")
    for command in (["sign", str(bundle), "--key", str(key)], ["verify", str(bundle), "--signers", str(key)]):
        capfd.readouterr()
        assert run_cli(["runs", *command]) == 2
        assert capfd.readouterr().err.startswith("flagperf: ssh-keygen is not on PATH; install OpenSSH's client")


# --- keys with a passphrase -----------------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    return make_key(tmp_path / "keys", "locked", "secret")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it listens now
    yield socket
    process.terminate()
    process.wait()


def test_nobody_is_asked_where_there_is_no_terminal(bundle: Path, locked: Path, tmp_path: Path) -> None:
    """Neither on a terminal that started the command nor by a program on a display."""
    asked = tmp_path / "asked"
    askpass = tmp_path / "askpass"
    askpass.write_text(f"#!/bin/sh\ntouch {asked}\necho secret\n")
    askpass.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", "runs", "sign", str(bundle), "--key", str(locked)],
        env={**os.environ, "DISPLAY": ":0", "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 3
    assert done.stderr.startswith(f"flagperf: ssh-keygen cannot sign with {locked}: ")
    assert "a key with a passphrase needs a terminal, or an agent (`ssh-add`)" in done.stderr
    assert done.stderr.count("\n") == 1 and not asked.exists()
    assert not (bundle / "MANIFEST.sig").exists()


def test_an_agent_signs_with_the_key_that_it_has(
    bundle: Path, locked: Path, agent: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    plain = locked.with_name("plain")
    shutil.copy(locked, plain)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "secret", "-N", "", "-f", str(plain)], check=True)
    subprocess.run(["ssh-add", "-q", str(plain)], check=True)
    sign(bundle, locked)
    assert verify(bundle, signers_of(locked), capfd)[0] == 0


@pytest.mark.parametrize(("passphrase", "code"), [("secret", 0), ("wrong", 3)])
def test_on_a_terminal_the_passphrase_is_asked_for(bundle: Path, locked: Path, passphrase: str, code: int) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "flagperf", "runs", "sign", str(bundle), "--key", str(locked)])
    printed, answered = b"", False
    while chunk := _read(terminal):
        printed += chunk
        if b"passphrase" in printed and not answered:
            os.write(terminal, passphrase.encode() + b"\n")
            answered = True
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code, printed
    assert answered and (bundle / "MANIFEST.sig").exists() == (code == 0)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1000)
    except OSError:  # its last process has ended
        return b""
