"""The corpus: texts, values and damage that broke something once or might. Everything random has a seed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OSC_52 = "\x1b]52;c;aGk=\x07"
"""Sets the clipboard of many terminals."""

TEXTS = (
    "",
    " ",
    "-",
    "..",
    "/",
    "/dev/zero",
    "/dev/null",
    "latest",
    "x" * 300,
    "a/" * 3_000,
    "y" * 100_000,
    "word " * 30_000,
    " " * 100_000 + "x",
    OSC_52,
    "\x1b[2J\x1b[31m",
    "\x9b31m\x90q\x9c",
    "\u202egnp.exe\u2066",
    "a\nflagperf: b\r\nc\u2028d",
    "\udc80\udcff",
    "%s{}{0}[bold]",
    "名前",
)
"""For arguments: names, paths, words."""

TOML_VALUES = (
    "9223372036854775808",
    "-9223372036854775809",
    "9223372036854775807",
    "0x" + "f" * 5_000,
    "9" * 5_000,
    "1e400",
    "nan",
    "-inf",
    "true",
    "1979-05-27T07:32:00Z",
    "''",
    "[1, [2]]",
    "{a = 1}",
    "[" * 5_000 + "]" * 5_000,
    "{a=" * 3_000 + "1" + "}" * 3_000,
    "'\x7f'",
    '"\\u001b]52;c;aGk=\\u0007"',
    '"\\u202e"',
    "not toml",
)

TOML_FILES = (
    b"",
    b"\xff\xfe",
    b"\xef\xbb\xbf[cases]\n",
    b"\x00",
    b"[cases\n",
    b"cases = 3\n",
    b"[cases]\ndistilbert = []\n",
    b"[cases.distilbert]\ntraining = 3\n",
    b"[cases.distilbert.training]\nbatch_size = []\n",
    b"[cases.distilbert.training.batch_size]\na = 1\n",
    b"[environment]\nnetwork = 3\n",
    b"[environment.network]\n",
    b'[environment]\n"net\\u001b]52;c;aGk=\\u0007" = "x"\n',
    b'["\\u009b2J"]\n',
    b"a = 1\na = 2\n",
    b"[" + b"a." * 5_000 + b"a]\nb = 1\n",
    b"a." * 5_000 + b"a = 1\n",
    b"a = " + b"[" * 100_000,
    b"[cases.distilbert.training]\nseed = " + b"9" * 5_000 + b"\n",
    b"[[cases]]\n" * 1_000,
    b"#" * (5 << 20),
)

JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 1e308, -1e308, 5e-324,
    "", "9", "x" * 5_000, OSC_52, "\x9b31m\u202e", [], {}, [[]], [None], [OSC_52], {"a": None}, {OSC_52: OSC_52},
)  # fmt: skip

DAMAGE = ("value",) * 12 + (
    "shuffled", "truncated", "flipped", "inserted", "deleted", "pipe", "folder", "link", "huge", "deep", "zeros",
)  # fmt: skip
NOT_FILES = ("pipe", "folder", "link", "huge")


def damage(bundle: Path, seed: int) -> str:
    """Damages one file of the bundle; says how."""
    chance = random.Random(seed)
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    data = [path for path in files if path.suffix in (".json", ".jsonl") and path.stat().st_size]
    path = chance.choice(data if chance.random() < 0.9 else files)
    kind = chance.choice(DAMAGE)
    if kind in ("value", "huge") and path not in data:  # a log of any size is hashed
        kind = "flipped"
    how = _change_value(path, chance) if kind == "value" else _damage_file(path, kind, chance)
    return f"seed {seed}: {path.relative_to(bundle)} {kind} {how}"


def is_file_still(how: str) -> bool:
    """Whether somebody could have rewritten MANIFEST after it."""
    return not any(f" {kind} " in how for kind in NOT_FILES)


def _change_value(path: Path, chance: random.Random) -> str:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = chance.randrange(len(lines))
    content = json.loads(lines[number])
    *parents, last = chance.choice([place for place in _places(content) if place])
    owner = content
    for key in parents:
        owner = owner[key]
    value = chance.choice((*JSON_VALUES, "deleted"))
    if value == "deleted":
        del owner[last]
    else:
        owner[last] = value
    lines[number] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")
    return f"line {number}, {[*parents, last]} = {str(value)[:40]!r}"


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from _places(inner, (*place, key))


def _damage_file(path: Path, kind: str, chance: random.Random) -> str:
    content = path.read_bytes()
    where = chance.randrange(len(content) + 1)
    if kind in ("deleted", "pipe", "folder", "link"):
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(chance.choice(["/dev/zero", "nowhere", path.name]))
    elif kind == "huge":
        with path.open("r+b") as file:
            file.truncate(3 << 30)  # sparse: takes no room
    else:
        flipped = content[:where] + bytes(byte ^ 1 << chance.randrange(8) for byte in content[where : where + 4])
        lines = content.splitlines(keepends=True)
        chance.shuffle(lines)
        inserted = chance.choice([b"\xff", b"\0", b"\n", b"{}\n", b"null\n", OSC_52.encode()])
        path.write_bytes(
            {
                "shuffled": b"".join(lines),
                "truncated": content[:where],
                "flipped": flipped + content[where + 4 :],
                "inserted": content[:where] + inserted + content[where:],
                "deep": chance.choice([b"[", b'{"a":']) * 100_000,
                "zeros": b"\0" * 100,
            }[kind]
        )
    return f"at {where}"
