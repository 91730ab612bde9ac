"""A detached signature of a bundle by an ssh key. MANIFEST has the hash of every file, so signing it signs them all;
the signature lies beside it, as MANIFEST.sig, and no hash covers it.

`ssh-keygen -Y` does the work: people have such keys and their agents already, and a file of allowed signers is what git
uses too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf.bundle.bundle import MAX_JSON_BYTES
from flagperf.bundle.paths import MANIFEST_FILE, SIGNATURE_FILE
from flagperf.errors import BadInput, BundleFailed, MissingPart, ToolFailed
from flagperf.files import read_regular, write_atomically

NAMESPACE = "flagperf"
"""A signature that was made for something else, such as a git commit, does not count here."""

USUAL_KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")
"""The first that exists is used."""

TIMEOUT_SECONDS = 60.0
"""The limit where nobody can be asked: an agent may wait for a confirmation that never comes."""

_MAX_SIGNERS_BYTES = 4 << 20


class Signature(msgspec.Struct, frozen=True):
    """Names who signed, or the reason why that does not count."""

    signer: str = ""
    problem: str = ""


def sign_bundle(path: Path, key: Path, *, may_ask: bool) -> Path:
    """Sign MANIFEST, and replace an earlier signature. With `may_ask`, ssh-keygen may ask for a passphrase on the
    terminal."""
    if not os.path.isfile(key):  # noqa: PTH113  Path's raises for a long name
        raise BadInput(f"{key} is not a key file; give one with --key FILE, or make one with `ssh-keygen -t ed25519`")
    try:
        manifest = read_regular(path / MANIFEST_FILE, MAX_JSON_BYTES)
    except OSError as error:
        raise BadInput(f"cannot read {path / MANIFEST_FILE}: {error.strerror}") from None
    try:
        # A copy is signed: ssh-keygen writes the signature beside what it signs.
        with tempfile.TemporaryDirectory(prefix="flagperf-") as folder:
            copy = Path(folder) / MANIFEST_FILE
            copy.write_bytes(manifest)
            done = _ssh_keygen(["-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(copy)], may_ask=may_ask)
            made = copy.with_name(SIGNATURE_FILE.name)
            if done.returncode != 0 or not made.exists():
                advice = "a key with a passphrase needs a terminal, or an agent (`ssh-add`)"
                raise ToolFailed(f"ssh-keygen cannot sign with {key}: {_reason(done)}; {advice}")
            signature = made.read_bytes()
    except OSError as error:
        advice = "free disk space, or name another folder with TMPDIR"
        raise ToolFailed(f"cannot write a temporary file: {error.strerror}; {advice}") from None
    try:
        write_atomically(path / SIGNATURE_FILE, signature)
    except OSError as error:
        raise BundleFailed(f"cannot write {path / SIGNATURE_FILE}: {error.strerror}") from None
    return path / SIGNATURE_FILE


def usual_key() -> Path:
    folder = Path(os.path.expanduser("~/.ssh"))  # noqa: PTH111  Path's raises where nobody has a home
    keys = (folder / name for name in USUAL_KEYS)
    found = next((key for key in keys if os.path.isfile(key)), None)  # noqa: PTH113  Path's raises for a closed folder
    if found is None:
        raise BadInput(f"there is no key in {folder}; give one with --key FILE, or make one with `ssh-keygen`")
    return found


def check_signature(path: Path, signers: Path) -> Signature:
    """Check the signature of a bundle. `signers` is a file of allowed signers, as in ssh-keygen(1)."""
    try:
        read_regular(signers, _MAX_SIGNERS_BYTES, follow_links=True)
    except OSError as error:
        raise BadInput(f"cannot read the file of signers {signers}: {error.strerror}") from None
    if not (path / SIGNATURE_FILE).exists():
        return Signature(problem=f"{SIGNATURE_FILE} is missing: the bundle is not signed")
    if not (path / MANIFEST_FILE).exists():
        return Signature(problem=f"{SIGNATURE_FILE} signs nothing: {MANIFEST_FILE} is missing")
    try:
        manifest = read_regular(path / MANIFEST_FILE, MAX_JSON_BYTES)
    except OSError as error:
        return Signature(problem=f"{MANIFEST_FILE} cannot be read: {error.strerror}")
    given = ["-n", NAMESPACE, "-s", str(path / SIGNATURE_FILE)]
    checked = _ssh_keygen(["-Y", "check-novalidate", *given], manifest)
    if checked.returncode != 0:
        return Signature(problem=f"{SIGNATURE_FILE} is not a signature of this {MANIFEST_FILE}: {_reason(checked)}")
    # `Good "flagperf" signature with ED25519 key SHA256:...`
    said = re.search(r"with (\S+) key (\S+)", checked.stdout.decode(errors="replace"))
    key, allowed = f"{said[1]} {said[2]}" if said else "unknown", ["-f", str(signers)]
    found = _ssh_keygen(["-Y", "find-principals", *allowed, "-s", str(path / SIGNATURE_FILE)])
    problem = f"signed with the key {key}, which {signers} does not have, or not for today: {_reason(found)}"
    names = found.stdout.decode(errors="replace").splitlines() if found.returncode == 0 else []
    for name in names:
        verified = _ssh_keygen(["-Y", "verify", *allowed, *given, "-I", name], manifest)
        if verified.returncode == 0:
            return Signature(signer=f"{name} ({key})")
        problem = f"signed by {name} ({key}), whom {signers} does not allow to: {_reason(verified)}"
    return Signature(problem=problem)


def _ssh_keygen(
    arguments: Sequence[str], stdin: bytes = b"", *, may_ask: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run ssh-keygen. Unless it may ask, it has neither a terminal nor a program to ask with."""
    tool = shutil.which("ssh-keygen")
    if tool is None:
        where = "on Debian: apt-get install openssh-client"
        raise MissingPart(f"ssh-keygen is not on PATH; install OpenSSH's client ({where})")
    quiet = {} if may_ask else {"SSH_ASKPASS_REQUIRE": "never"}
    try:
        return subprocess.run(
            [tool, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=None if may_ask else subprocess.PIPE,  # a key may have to be touched, which it says there
            env={**os.environ, "LC_ALL": "C", **quiet},
            start_new_session=not may_ask,
            timeout=None if may_ask else TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"ssh-keygen did not end within {TIMEOUT_SECONDS:g} s; does an agent wait for you?") from None
    except OSError as error:
        raise ToolFailed(f"{tool} cannot be started: {error.strerror}") from None


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("Enter passphrase: ") if lines else ""
    return last or f"it ended with exit code {done.returncode}"
