"""Data folders that are damaged or worse: each ends as one clear message before the run, or is read as it is."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from data_folders import FOLDERS, damage

from flagperf.errors import BadInput

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

SECONDS = 30
NUM_SEEDS = 40
FOUND = {
    "distilbert": (42, 612, 2163),
    "llama": (54, 87, 276, 1963),
}
"""Seeds of damage that once ended in another exception, in a message that filled the screen, or only in a worker."""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in FOLDERS}
    for name, folder in folders.items():
        FOLDERS[name].write(folder, FOLDERS[name].values())
    return folders


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    """A pipe that is opened, or a device that is read, would hold the tests up for ever."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"still reading after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refusal(name: str, folder: Path) -> str:
    with pytest.raises(BadInput) as caught:
        FOLDERS[name].check(folder)
    check_message(str(caught.value))
    return str(caught.value)


def check_message(message: str) -> None:
    """One line, not too long, nothing that a terminal would obey, and what to do after the problem."""
    assert message.isprintable() and len(message) < 1500 and ";" in message, message


# --- what is not a regular file -------------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def sparse(path: Path) -> None:
    """A terabyte that takes no room."""
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (pipe, "is a pipe, not a regular file"),
        (endless, "is a device, not a regular file"),
        (folder, "is a folder, not a regular file"),
        (loop, "cannot read"),
        (nowhere, "No such file or directory"),
        (sparse, ""),
    ],
)
@pytest.mark.parametrize("name", FOLDERS)
def test_every_file_has_to_be_a_regular_one(
    templates: dict[str, Path], tmp_path: Path, name: str, put: Callable[[Path], None], words: str
) -> None:
    files = [file.path for file in FOLDERS[name].check(templates[name])]
    shutil.copytree(templates[name], tmp_path / "data")
    for each in files:
        path = tmp_path / "data" / each
        path.unlink()
        put(path)
        message = refusal(name, tmp_path / "data")
        assert words in message and path.name in message
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copyfile(templates[name] / each, path)


@pytest.mark.parametrize("name", FOLDERS)
def test_links_to_regular_files_are_followed(templates: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Folders of download tools consist of them."""
    for path in templates[name].rglob("*"):
        if path.is_file():
            link = tmp_path / path.relative_to(templates[name])
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    assert FOLDERS[name].check(tmp_path) == FOLDERS[name].check(templates[name])


# --- what grows when it is read -------------------------------------------------------------------------------------

WEIGHTS = {
    "glm": "blocklm-large-blank/200000/mp_rank_00_model_states.pt",
    "llama": "llama2_7b_hf/pytorch_model-00001-of-00002.bin",
    "shards": "ckpts/iter_0135000/mp_rank_00_000/model_optim_rng.pt",
}


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quarter of a gibibyte in a megabyte."""
    path = tmp_path_factory.mktemp("bomb") / "weights"
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("archive/data.pkl", "w") as file:
        for _ in range(16):
            file.write(bytes(1 << 24))
    return path


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_zip_bomb_is_not_unpacked(templates: dict[str, Path], bomb: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(templates[name], tmp_path / "data")
    shutil.copyfile(bomb, tmp_path / "data" / WEIGHTS[name])
    tracemalloc.start()
    try:
        assert "it is a compressed archive, and torch compresses nothing" in refusal(name, tmp_path / "data")
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


# --- what is no text, no JSON, or only half of it -------------------------------------------------------------------

DEEP = "[" * 200_000
HALF_A_CHARACTER = '"\\ud83d"'


@pytest.mark.parametrize(
    ("name", "path", "content", "words"),
    [
        ("distilbert", "distilbert-base-uncased/config.json", DEEP, "nested too deeply"),
        ("distilbert", "distilbert-base-uncased/config.json", f'{{"a": {HALF_A_CHARACTER}}}', "surrogate pair"),
        ("distilbert", "distilbert-base-uncased/model.safetensors", None, "its header is damaged"),
        ("glm", "ReCoRD/val.jsonl", '{"idx": ' + DEEP, "line 1 is not a JSON object on one line"),
        ("glm", "ReCoRD/val.jsonl", f'{{"passage": {HALF_A_CHARACTER}}}', "line 1 is not a JSON object on one line"),
        ("glm", "bert-base-uncased/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n", "is not BERT's vocabulary"),
        ("llama", "samsum_dataset/val.json", DEEP, "nested too deeply"),
        ("llama", "samsum_dataset/val.json", f'[{{"dialogue": {HALF_A_CHARACTER}}}]', "surrogate pair"),
        ("llama", "samsum_dataset/val.json", "[" + "9" * 5000 + "]", "is not JSON"),
        (
            "llama",
            "llama2_7b_hf/pytorch_model.bin.index.json",
            '{"metadata": {}, "weight_map": {"a": 1}}',
            "is not a .bin file",
        ),
        ("hf", "hf/config.json", DEEP, "nested too deeply"),
        ("hf", "data/lambada_test.jsonl", f'{{"text": {HALF_A_CHARACTER}}}\n', "line 1 is not JSON"),
        ("hf", "data/lambada_test.jsonl", '{"text": ' + DEEP, "line 1 is not JSON that can be read: it is nested"),
        ("hf", "tokenizer/vocab.json", '{"a": 0, "b": 2}', "does not number its words from 0 on"),
    ],
)
def test_what_looks_like_json_and_is_not(
    templates: dict[str, Path], tmp_path: Path, name: str, path: str, content: str | None, words: str
) -> None:
    shutil.copytree(templates[name], tmp_path / "data")
    deep_header = len(DEEP).to_bytes(8, "little") + DEEP.encode()
    (tmp_path / "data" / path).write_bytes(deep_header if content is None else content.encode())
    assert words in refusal(name, tmp_path / "data")


@pytest.mark.parametrize("state", [{1: "tensor"}, {"\ud800": "tensor"}, {"a\x1b[31m": "tensor"}, {"a": (2, 2)}])
def test_names_that_are_no_text_and_shapes_that_are_no_tensors(
    templates: dict[str, Path], tmp_path: Path, state: dict[object, object]
) -> None:
    import torch

    content = {name: torch.zeros(2) if value == "tensor" else value for name, value in state.items()}
    for name, wrapped in (("llama", content), ("glm", {"module": content})):
        shutil.copytree(templates[name], tmp_path / name)
        torch.save(wrapped, tmp_path / name / WEIGHTS[name])
        refusal(name, tmp_path / name)


@pytest.mark.parametrize("name", ["distilbert", "glm", "llama", "text", "hf"])
def test_half_a_vocabulary_is_refused(tmp_path: Path, name: str) -> None:
    """With a vocabulary that is large enough to tell half of it from padding."""
    from dataclasses import replace

    sizes = {"distilbert": 30_522, "glm": 30_592, "llama": 32_000, "text": 32_000, "hf": 100_008}
    of_case = replace(FOLDERS[name], changes={**FOLDERS[name].changes, "model__vocabulary": sizes[name]})
    if name in ("distilbert", "glm"):
        of_case = replace(of_case, changes={**of_case.changes, "model__checkpoint": False})
    FOLDERS[name].write(tmp_path, FOLDERS[name].values())
    with pytest.raises(BadInput, match=f"fewer than model.vocabulary={sizes[name]}"):
        of_case.check(tmp_path)


# --- a corpus of damage, by seed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_a_damaged_folder_is_refused_or_read_and_nothing_else(
    templates: dict[str, Path], tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is accepted before the run is read by the worker's own functions too."""
    of_case, counts = FOLDERS[name], {"refused": 0, "read": 0}
    values = of_case.values()
    for seed in (*FOUND.get(name, ()), *range(NUM_SEEDS)):
        shutil.copytree(templates[name], tmp_path / "data")
        done = damage(tmp_path / "data", f"{name} {seed}")
        try:
            of_case.check(tmp_path / "data")
            of_case.load(tmp_path / "data", values)
            counts["read"] += 1
        except BadInput as error:
            check_message(str(error))
            counts["refused"] += 1
        except Exception as error:
            print(capfd.readouterr().err[-500:], file=sys.stderr)
            raise AssertionError(f"seed {seed}, {done}") from error
        shutil.rmtree(tmp_path / "data")
    assert counts["refused"] > NUM_SEEDS / 2, "damage that nobody notices is no damage"


@pytest.mark.parametrize("name", FOLDERS)
def test_undamaged_folders_are_read(templates: dict[str, Path], name: str) -> None:
    FOLDERS[name].check(templates[name])
    FOLDERS[name].load(templates[name], FOLDERS[name].values())
