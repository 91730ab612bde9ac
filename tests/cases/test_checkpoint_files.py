"""Names and shapes out of checkpoints of every form, and what is said of those that are damaged or worse."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weight_files import safetensors, write_safetensors

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import can_look_into, check_shapes, find_weights, read_shapes, read_tensors

SHAPES = {"a.weight": (4, 3), "a.bias": (4,), "scale": ()}


def sharded(folder: Path, **places: str) -> None:
    """`a` in the first file, `b` in the second; an index that says so, but for `places`."""
    write_safetensors(folder / "model-00001-of-00002.safetensors", {"a": (2,)})
    write_safetensors(folder / "model-00002-of-00002.safetensors", {"b": (3, 1)})
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", **places}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def refusal(function: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(BadInput) as caught:
        function(*arguments, "get it")
    assert str(caught.value).endswith("get it")
    return str(caught.value)


# Which files


def test_safetensors_go_before_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    assert find_weights(tmp_path, "get it") == [tmp_path / "pytorch_model.bin"]
    (tmp_path / "model.safetensors").touch()
    assert find_weights(tmp_path, "get it") == [tmp_path / "model.safetensors"]


def test_shards_are_found_by_their_index(tmp_path: Path) -> None:
    sharded(tmp_path)
    files = find_weights(tmp_path, "get it")
    assert [path.name for path in files] == [
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert read_shapes(files, "get it") == {"a": (2,), "b": (3, 1)}


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors: No such file" in refusal(find_weights, tmp_path)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (
            {"a": "model-00002-of-00002.safetensors"},
            "a is in model-00002-of-00002.safetensors, and it is in model-00001",
        ),
        ({"c": "model-00002-of-00002.safetensors"}, "c is in model-00002-of-00002.safetensors, and it is not there"),
    ],
)
def test_an_index_that_is_wrong_is_told(tmp_path: Path, places: dict[str, str], words: str) -> None:
    sharded(tmp_path, **places)
    if "a" in places:  # the first shard has to be listed all the same
        index = tmp_path / "model.safetensors.index.json"
        content = json.loads(index.read_text())
        content["weight_map"]["z"] = "model-00001-of-00002.safetensors"
        index.write_text(json.dumps(content))
    assert words in refusal(read_shapes, find_weights(tmp_path, "get it"))


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}',
        '{"metadata": {}, "weight_map": {}}',
        '{"metadata": {}, "weight_map": {"a": "../a.safetensors"}}',
        '{"metadata": {}, "weight_map": {"a": "model.bin"}}',
        '{"metadata": {}, "weight_map": [1]}',
    ],
)
def test_an_index_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json" in refusal(find_weights, tmp_path)


# safetensors


def test_the_header_gives_names_and_shapes(tmp_path: Path) -> None:
    assert read_shapes([write_safetensors(tmp_path / "model.safetensors", SHAPES)], "get it") == SHAPES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "does not begin as a safetensors file does"),
        (b"version https://git-lfs.github.com/spec/v1\n", "does not begin as a safetensors file does"),
        (safetensors(SHAPES)[:-1], "bytes where its header says"),
        (safetensors(SHAPES) + b"\0", "bytes where its header says"),
        (safetensors(SHAPES)[:30], "does not begin as a safetensors file does"),
        (struct.pack("<Q", 2) + b"[]", "its header is damaged"),
        (struct.pack("<Q", 2) + b"{x", "its header is damaged"),
        (struct.pack("<Q", 7) + b'{"a":1}', "its header is damaged"),
        (safetensors(SHAPES).replace(b"[4, 3]", b"[4, 2]"), "its header is damaged"),
        (safetensors(SHAPES).replace(b"[4, 3]", b"[-4,3]"), "its header is damaged"),
        (safetensors(SHAPES).replace(b"F32", b"N32"), "its header is damaged"),
        (safetensors(SHAPES).replace(b"[48, 64]", b"[44, 60]"), "its header is damaged"),
    ],
)
def test_a_damaged_file_is_told_from_its_header(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    message = refusal(read_shapes, [path])
    assert f"cannot read the weights {path}: " in message and words in message


# Pickles


def saved(path: Path, state: Any, *, legacy: bool = False) -> Path:
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    return path


def tensors() -> dict[str, Any]:
    parameter = torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16))
    return {**{name: torch.zeros(shape) for name, shape in SHAPES.items()}, "whole": torch.arange(5), "own": parameter}


@pytest.mark.parametrize("legacy", [False, True])
def test_both_forms_of_a_pickle_give_names_and_shapes(tmp_path: Path, legacy: bool) -> None:
    path = saved(tmp_path / "pytorch_model.bin", tensors(), legacy=legacy)
    assert read_shapes([path], "get it") == {**SHAPES, "whole": (5,), "own": (2, 2)}
    assert {name: tuple(tensor.shape) for name, tensor in read_tensors([path], "get it").items()} == read_shapes(
        [path], "get it"
    )


def test_the_state_of_a_module_is_read_with_what_torch_adds_to_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "pytorch_model.bin", torch.nn.Linear(3, 4).state_dict())
    assert read_shapes([path], "get it") == {"weight": (4, 3), "bias": (4,)}


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
@pytest.mark.parametrize("read", [read_shapes, read_tensors])
def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, form: str, read: Callable[..., Any]) -> None:
    harm, path = tmp_path / "harm", tmp_path / "pytorch_model.bin"
    if form == "bare":
        path.write_bytes(pickle.dumps(Malicious(harm)))
    else:
        saved(path, {**tensors(), "extra": Malicious(harm)}, legacy=form == "legacy")
    assert "cannot read the weights" in refusal(read, [path])
    assert not harm.exists()


@pytest.mark.parametrize("state", [{"model": {"a": 1}}, [1, 2], {"epoch": 3}])
def test_a_pickle_of_something_else_is_refused(tmp_path: Path, state: Any) -> None:
    path = saved(tmp_path / "pytorch_model.bin", state)
    assert "it does not hold tensors by their names" in refusal(read_shapes, [path])


@pytest.mark.parametrize("legacy", [False, True])
def test_a_torn_pickle_is_refused(tmp_path: Path, legacy: bool) -> None:
    path = saved(tmp_path / "pytorch_model.bin", tensors(), legacy=legacy)
    path.write_bytes(path.read_bytes()[:200])
    assert "cannot read the weights" in refusal(read_shapes, [path])


def test_an_archive_that_torch_did_not_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", b"")
    assert "cannot read the weights" in refusal(read_shapes, [path])


def test_without_torch_only_the_size_of_its_files_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = [tmp_path / f"pytorch_model-{number}.bin" for number in range(3)]
    assert can_look_into(weights)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert can_look_into([tmp_path / "model.safetensors", tmp_path / "model.safetensors.index.json"])
    assert not can_look_into([tmp_path / "pytorch_model.bin.index.json", *weights])
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{weights[0]} and 2 more: torch is not installed here, so only the size is checked"


# What fits


def test_the_first_three_differences_are_named(tmp_path: Path) -> None:
    wanted = {"a": (1,), "b": (2,), "c": (3, 3)}
    check_shapes(tmp_path, wanted, wanted, "get it")
    message = refusal(lambda advice: check_shapes(tmp_path, {"c": (3, 4), "d": (1,)}, wanted, advice))
    assert "a is missing, b is missing, d is unknown, and 1 more" in message
    message = refusal(lambda advice: check_shapes(tmp_path, {**wanted, "c": (3, 4)}, wanted, advice))
    assert "c has the shape (3, 4), not (3, 3);" in message
