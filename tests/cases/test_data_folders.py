"""Complete data folders are read and recorded; damaged ones and worse end as one clear message before the run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from case_harness import CaseHarness
from data_folders import FOLDERS, RECORD, damage
from weight_files import write_safetensors

from flagperf.errors import BadInput
from flagperf_cases.distilbert.data import encoder_shapes

SECONDS = 120
NUM_SEEDS = 40
FOUND = {
    "distilbert": (42, 612, 2163),
    "llama": (54, 87, 276, 1963),
}
"""Seeds of damage that once ended in another exception, in a message that filled the screen, or only in a worker."""


@pytest.fixture(scope="session")
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


def refusal(name: str, folder: Path | None) -> str:
    with pytest.raises(BadInput) as caught:
        FOLDERS[name].check(folder)
    check_message(str(caught.value))
    return str(caught.value)


def check_message(message: str) -> None:
    """One line, not too long, nothing that a terminal would obey, and what to do after the problem."""
    assert message.isprintable() and len(message) < 1500 and ";" in message, message


@pytest.mark.parametrize("name", FOLDERS)
def test_every_file_of_a_complete_folder_is_recorded_and_read(templates: dict[str, Path], name: str) -> None:
    found = {file.path: (file.num_bytes, file.sha256) for file in FOLDERS[name].check(templates[name])}
    assert found == {
        path.relative_to(templates[name]).as_posix(): (
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in templates[name].rglob("*")
        if path.is_file()
    }
    FOLDERS[name].load(templates[name], FOLDERS[name].values())


@pytest.mark.parametrize("case", sorted({folder.case for folder in FOLDERS.values()}))
def test_made_up_data_needs_no_files(case: str, tmp_path: Path) -> None:
    check_files, values = import_module(f"flagperf_cases.{case}.data").check_files, CaseHarness(case).values()
    assert check_files(None, values) == check_files(tmp_path / "absent", values) == []


@pytest.mark.parametrize("name", FOLDERS)
def test_a_missing_folder_is_named(name: str, tmp_path: Path) -> None:
    assert str(tmp_path / "absent") in refusal(name, tmp_path / "absent")
    assert "no --data-dir was given" in refusal(name, None)


@pytest.mark.parametrize(
    ("name", "change", "kept"),
    [("distilbert", {}, 3), ("glm", {}, 3), ("llama", {"evaluation__subjects": 0}, 4)],
)
def test_without_the_checkpoint_none_is_read(
    templates: dict[str, Path], name: str, change: dict[str, Any], kept: int
) -> None:
    changes = {**FOLDERS[name].changes, "model__checkpoint": False, **change}
    assert len(replace(FOLDERS[name], changes=changes).check(templates[name])) == kept


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


# --- contents that cannot be used -----------------------------------------------------------------------------------

DEEP = "[" * 200_000
HALF_A_CHARACTER = '"\\ud83d"'
BERT = "distilbert-base-uncased"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{number}" for number in range(60))]
GLM_WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nann\nleft\nit\nwas\n"
LONG_QUERY = {**RECORD, "qas": [{**RECORD["qas"][0], "query": "it was @placeholder" + " left" * 40}]}

Content = str | bytes | dict[str, Any] | Callable[[bytes], bytes]
"""What a file holds, how its JSON changes (None drops a key), or what becomes of its bytes."""

UNUSABLE: list[tuple[str, str, Content, str]] = [
    ("distilbert", "SST-2/train.tsv", "", "is empty"),
    ("distilbert", "SST-2/dev.tsv", "sentence\tlabel\n", "has a header and no rows"),
    ("distilbert", "SST-2/dev.tsv", "label\tsentence\n1\tgood\n", "line 1: expected the header"),
    ("distilbert", "SST-2/train.tsv", "a stirring film\t1\n" * 6920, "6,920 rows"),
    (
        "distilbert",
        "SST-2/dev.tsv",
        "sentence\tlabel\nfine \t1\na good film 1\n",
        "line 3: expected sentence<TAB>label",
    ),
    ("distilbert", "SST-2/dev.tsv", "sentence\tlabel\ngood\tvery\t1\n", "line 2: expected sentence<TAB>label"),
    ("distilbert", "SST-2/dev.tsv", "sentence\tlabel\nfine \tpositive\n", "must be 0 or 1, found 'positive'"),
    ("distilbert", "SST-2/dev.tsv", "sentence\tlabel\nfine \t1\r\n", "line 2 has a Windows line ending (CR LF)"),
    ("distilbert", "SST-2/dev.tsv", "sentence\tlabel\n \t1\n", "line 2: the sentence is empty"),
    ("distilbert", "SST-2/dev.tsv", b"sentence\tlabel\n\xff\xfe \t1\n", "line 2 is not UTF-8"),
    ("distilbert", f"{BERT}/vocab.txt", "good\nbad\n", "is not BERT's vocabulary"),
    (
        "distilbert",
        f"{BERT}/vocab.txt",
        "\n".join([*WORDS, "one"]),
        "vocab.txt has 65 words, more than model.vocabulary",
    ),
    ("distilbert", f"{BERT}/vocab.txt", "\n".join(WORDS[:-1]), "vocab.txt has 63 words, fewer than model.vocabulary"),
    ("distilbert", f"{BERT}/config.json", "{", "config.json is not JSON"),
    ("distilbert", f"{BERT}/config.json", "[1]", "config.json is not a JSON object"),
    ("distilbert", f"{BERT}/vocab.txt", b"\xef\xbb\xbf[PAD]\n", "begins with a byte order mark"),
    ("distilbert", f"{BERT}/config.json", DEEP, "nested too deeply"),
    ("distilbert", f"{BERT}/config.json", f'{{"a": {HALF_A_CHARACTER}}}', "surrogate pair"),
    ("distilbert", f"{BERT}/config.json", {"dim": 16}, "dim=16, and this run has model.width=8"),
    ("distilbert", f"{BERT}/config.json", {"n_layers": 1}, "n_layers=1, fewer than model.layers=2"),
    ("distilbert", f"{BERT}/config.json", {"dim": None}, "config.json: dim is missing"),
    ("distilbert", f"{BERT}/config.json", {"n_heads": "2"}, "config.json: n_heads is '2', not a whole number"),
    (
        "distilbert",
        f"{BERT}/config.json",
        {"model_type": "bert"},
        "is not of a DistilBERT with gelu (model_type 'bert'",
    ),
    ("distilbert", f"{BERT}/config.json", {"activation": "relu"}, "activation 'relu'"),
    (
        "distilbert",
        f"{BERT}/model.safetensors",
        len(DEEP).to_bytes(8, "little") + DEEP.encode(),
        "its header is damaged",
    ),
    ("glm", "ReCoRD/train.jsonl", json.dumps({**RECORD, "qas": []}), "train.jsonl line 1: a passage without queries"),
    ("glm", "ReCoRD/val.jsonl", '{"idx": ' + DEEP, "line 1 is not a JSON object on one line"),
    ("glm", "ReCoRD/val.jsonl", f'{{"passage": {HALF_A_CHARACTER}}}', "line 1 is not a JSON object on one line"),
    ("glm", "ReCoRD/val.jsonl", json.dumps(LONG_QUERY), "takes 47 positions"),
    ("glm", "bert-base-uncased/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n", "is not BERT's vocabulary"),
    ("glm", "bert-base-uncased/vocab.txt", GLM_WORDS + "".join(f"x{n}\n" for n in range(54)), "gives 65 tokens, more"),
    ("glm", "bert-base-uncased/vocab.txt", GLM_WORDS + "ann\n", "has the word 'ann' 2 times"),
    (
        "glm",
        "blocklm-large-blank/latest_checkpointed_iteration.txt",
        "../../elsewhere",
        "should hold the name of a folder like 200000",
    ),
    ("glm", WEIGHTS["glm"], "version https://git-lfs.github.com/spec/v1\n", "cannot read the weights"),
    ("llama", "samsum_dataset/val.json", DEEP, "nested too deeply"),
    ("llama", "samsum_dataset/val.json", f'[{{"dialogue": {HALF_A_CHARACTER}}}]', "surrogate pair"),
    ("llama", "samsum_dataset/val.json", "[" + "9" * 5000 + "]", "is not JSON"),
    ("llama", "samsum_dataset/train.json", "[]", "has to be an array of dialogues, and not an empty one"),
    ("llama", "samsum_dataset/train.json", '["a"]', "entry 1 is not an object"),
    ("llama", "samsum_dataset/train.json", '[{"dialogue": "a"}]', "entry 1 has no text called `summary`"),
    (
        "llama",
        "mmlu_dataset/dev/abstract_algebra_dev.csv",
        "q,1,2,3,4,A\n" * 4,
        "has 4 examples, fewer than evaluation.shots=5",
    ),
    ("llama", "llama2_7b_hf/config.json", {"hidden_size": 32}, "hidden_size=32, and this run has model.width=16"),
    ("llama", "llama2_7b_hf/config.json", {"num_hidden_layers": 0}, "num_hidden_layers=0, fewer than model.layers=1"),
    ("llama", "llama2_7b_hf/config.json", {"model_type": "mistral"}, "of type 'mistral', not llama"),
    ("llama", "llama2_7b_hf/generation_config.json", "{", "generation_config.json is not JSON"),
    ("llama", "llama2_7b_hf/adapter_config.json", "{}", "it is an adapter, not a whole model"),
    (
        "llama",
        "llama2_7b_hf/pytorch_model.bin.index.json",
        '{"metadata": {}, "weight_map": {"a": 1}}',
        "is not a .bin file",
    ),
    ("tokens", "tokens.bin", lambda old: old[:-2], "truncated"),
    ("tokens", "tokens.idx", lambda old: old[:-2], "truncated"),
    ("tokens", "tokens.idx", b"PK\x03\x04" + bytes(100), "does not begin as Megatron's"),
    ("tokens", "tokens.bin", lambda old: b"\x40\x00" + old[2:], "token 64 is not below model"),
    ("hf", "hf/config.json", DEEP, "nested too deeply"),
    ("hf", "hf/config.json", {"num_attention_heads": 8}, "num_attention_heads=8, and this run has model.heads=16"),
    ("hf", "hf/config.json", {"rope_theta": 1e6}, "rope_theta=1000000.0, and this run has model.rope_base=10000.0"),
    ("hf", "hf/config.json", {"rope_parameters": {"rope_type": "llama3"}}, "rotary positions of type 'llama3'"),
    ("hf", "hf/config.json", {"rope_scaling": {"type": "linear"}}, "rotary positions of type 'linear'"),
    ("hf", "hf/config.json", {"rms_norm_eps": 1e-6}, "rms_norm_eps=1e-06, and this run has model.norm_eps=1e-05"),
    ("hf", "hf/config.json", {"tie_word_embeddings": True}, "this run has model.tied=False"),
    ("hf", "hf/config.json", {"model_type": "gpt2"}, "of a model of type 'gpt2', not llama or aquila"),
    ("hf", "data/lambada_test.jsonl", f'{{"text": {HALF_A_CHARACTER}}}\n', "line 1 is not JSON"),
    ("hf", "data/lambada_test.jsonl", '{"text": ' + DEEP, "line 1 is not JSON that can be read: it is nested"),
    ("hf", "data/lambada_test.jsonl", '{"text": "ab"}\n{"words": "ab"}\n', "line 2 is not a JSON object with the key"),
    ("hf", "data/lambada_test.jsonl", '{"text": " "}\n', "line 1 has no text"),
    ("hf", "data/lambada_test.jsonl", '{"text": "' + "ab " * 80 + '"}\n', "has 161 tokens, above model.sequence=64"),
    ("hf", "tokenizer/vocab.json", '{"a": 0, "b": 2}', "does not number its words from 0 on"),
    ("hf", "tokenizer/special_tokens.txt", "</s>\n", "has no line [CLS]"),
]


@pytest.mark.parametrize(("name", "path", "content", "words"), UNUSABLE)
def test_contents_that_cannot_be_used_are_refused_with_the_file(
    templates: dict[str, Path], tmp_path: Path, name: str, path: str, content: Content, words: str
) -> None:
    shutil.copytree(templates[name], tmp_path / "data")
    file = tmp_path / "data" / path
    if isinstance(content, dict):
        changed = {**json.loads(file.read_text()), **content}
        content = json.dumps({key: value for key, value in changed.items() if value is not None})
    if callable(content):
        content = content(file.read_bytes())
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    assert words in refusal(name, tmp_path / "data")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"distilbert.embeddings.LayerNorm.bias": None}, "distilbert.embeddings.LayerNorm.bias is missing"),
        ({"pooler": (8,)}, "pooler is unknown"),
        ({"distilbert.transformer.layer.1.ffn.lin1.bias": (15,)}, "lin1.bias has the shape (15,), not (16,)"),
        ({"distilbert.embeddings.position_embeddings.weight": (12, 8)}, "has the shape (12, 8), not (16, 8)"),
    ],
)
def test_weights_that_do_not_fit_are_named_before_the_run(
    templates: dict[str, Path], tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    shutil.copytree(templates["distilbert"], tmp_path / "data")
    shapes = {**encoder_shapes(FOLDERS["distilbert"].values()["model"]), **change}
    path = tmp_path / "data" / BERT / "model.safetensors"
    write_safetensors(path, {name: shape for name, shape in shapes.items() if shape})
    message = refusal("distilbert", tmp_path / "data")
    assert f"{path} does not fit the model of this run: " in message and words in message


def test_ready_made_arrays_are_refused_with_a_hint(templates: dict[str, Path], tmp_path: Path) -> None:
    """They do no harm beside the text."""
    shutil.copytree(templates["glm"], tmp_path / "data")
    arrays = tmp_path / "data/ReCoRD/glm_train_eval_hdf5_sparse/train_hdf5/train_sparse.hdf5"
    arrays.parent.mkdir(parents=True)
    arrays.write_bytes(b"\x89HDF\r\n\x1a\n")
    FOLDERS["glm"].check(tmp_path / "data")
    (tmp_path / "data/ReCoRD/val.jsonl").unlink()
    message = refusal("glm", tmp_path / "data")
    assert "HDF5 arrays are not read" in message and "super.gluebenchmark.com" in message


@pytest.mark.parametrize("prefix", ["", "/", "/elsewhere/tokens", "../tokens"])
def test_prefixes_of_files_elsewhere_are_refused(templates: dict[str, Path], prefix: str) -> None:
    elsewhere = replace(FOLDERS["tokens"], changes={**FOLDERS["tokens"].changes, "data__prefix": prefix})
    with pytest.raises(BadInput, match="names no files below --data-dir"):
        elsewhere.check(templates["tokens"])


@pytest.mark.parametrize("state", [{1: "tensor"}, {"\ud800": "tensor"}, {"a\x1b[31m": "tensor"}, {"a": (2, 2)}])
def test_names_that_are_no_text_and_shapes_that_are_no_tensors(
    templates: dict[str, Path], tmp_path: Path, state: dict[object, object]
) -> None:
    content = {name: torch.zeros(2) if value == "tensor" else value for name, value in state.items()}
    for name, wrapped in (("llama", content), ("glm", {"module": content})):
        shutil.copytree(templates[name], tmp_path / name)
        torch.save(wrapped, tmp_path / name / WEIGHTS[name])
        refusal(name, tmp_path / name)


@pytest.mark.parametrize("name", ["distilbert", "glm", "llama", "text", "hf"])
def test_half_a_vocabulary_is_refused(tmp_path: Path, name: str) -> None:
    """With a vocabulary that is large enough to tell half of it from padding."""
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
