"""A complete, small data folder for each case, what a run reads from it, and ways to damage it by a seed."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from case_harness import CaseHarness

Values = dict[str, Any]


@dataclass(frozen=True)
class DataFolder:
    case: str
    profile: str
    changes: Values
    write: Callable[[Path, Values], None]
    load: Callable[[Path, Values], Any]
    """All that a worker would read."""

    def values(self) -> Values:
        return CaseHarness(self.case).values(self.profile, **self.changes)

    def check(self, folder: Path | None) -> Any:
        return import_module(f"flagperf_cases.{self.case}.data").check_files(folder, self.values())


def settings(values: Values) -> SimpleNamespace:
    return SimpleNamespace(**{name: SimpleNamespace(**part) for name, part in values.items() if name != "precision"})


# --- distilbert -----------------------------------------------------------------------------------------------------

ENCODER = {"layers": 2, "width": 8, "heads": 2, "ffn": 16, "vocabulary": 64, "sequence": 16}


def write_distilbert(folder: Path, values: Values) -> None:
    from weight_files import write_safetensors

    from flagperf_cases.distilbert.data import encoder_shapes

    (folder / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / "SST-2" / name).write_text("sentence\tlabel\na good film \t1\nbad \t0\n")
    home = folder / "distilbert-base-uncased"
    home.mkdir()
    config = {"dim": 8, "hidden_dim": 16, "n_heads": 2, "n_layers": 2, "vocab_size": 64, "max_position_embeddings": 16}
    (home / "config.json").write_text(json.dumps({**config, "model_type": "distilbert", "activation": "gelu"}))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{number}" for number in range(60))]
    (home / "vocab.txt").write_text("\n".join(words) + "\n")
    write_safetensors(home / "model.safetensors", encoder_shapes(values["model"]))


def load_distilbert(folder: Path, values: Values) -> None:
    from flagperf_cases.distilbert.case import build_model
    from flagperf_cases.distilbert.data import load_data

    load_data(settings(values), folder)
    build_model(settings(values).model, folder)


# --- glm ------------------------------------------------------------------------------------------------------------

RECORD = {
    "passage": {"text": "Ann left ’the’ house", "entities": [{"start": 0, "end": 2}, {"start": 15, "end": 19}]},
    "qas": [{"query": "it was @placeholder", "answers": [{"start": 0, "end": 2, "text": "Ann"}]}],
}


def write_glm(folder: Path, values: Values) -> None:
    from glm_checkpoints import save_checkpoint

    from flagperf_cases.glm.case import Glm

    (folder / "ReCoRD").mkdir()
    for name in ("train.jsonl", "val.jsonl"):
        (folder / "ReCoRD" / name).write_text((json.dumps(RECORD) + "\n") * 2)
    (folder / "bert-base-uncased").mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "left", "the", "house", "it", "was"]
    (folder / "bert-base-uncased/vocab.txt").write_text("\n".join(words) + "\n")
    torch.manual_seed(0)
    state = Glm(settings(values).model).state_dict()
    save_checkpoint(folder / "blocklm-large-blank", {"module": state, "iteration": 7})


def load_glm(folder: Path, values: Values) -> None:
    from flagperf_cases.glm.case import Glm, load_checkpoint
    from flagperf_cases.glm.data import load_data

    load_data(settings(values), folder)
    load_checkpoint(Glm(settings(values).model), folder / "blocklm-large-blank")


# --- llama2_7b_finetune ---------------------------------------------------------------------------------------------

LLAMA = {"layers": 1, "width": 16, "heads": 4, "kv_heads": 2, "ffn": 24, "vocabulary": 64, "sequence": 32}


def write_llama(folder: Path, values: Values) -> None:
    from sentencepiece_models import train_tokenizer

    from flagperf_cases.checkpoint_files import llama_shapes

    home = folder / "llama2_7b_hf"
    home.mkdir()
    train_tokenizer(home / "tokenizer.model")
    config = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"intermediate_size": 24, "vocab_size": 64, "num_hidden_layers": 1, "rms_norm_eps": 1e-5}
    (home / "config.json").write_text(json.dumps(config))
    tensors = {name: torch.ones(shape) for name, shape in llama_shapes(values["model"]).items()}
    halves = [dict(list(tensors.items())[start::2]) for start in range(2)]
    places = {}
    for number, half in enumerate(halves, 1):
        name = f"pytorch_model-{number:05d}-of-00002.bin"
        torch.save(half, home / name)
        places |= dict.fromkeys(half, name)
    (home / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "samsum_dataset").mkdir()
    for split in ("train", "val", "test"):
        dialogue = {"id": "1", "dialogue": "the quick 😀 fox\r\njumps over", "summary": "a fox jumps"}
        (folder / "samsum_dataset" / f"{split}.json").write_text(json.dumps([dialogue] * 3))
    for kind in ("dev", "test"):
        (folder / "mmlu_dataset" / kind).mkdir(parents=True)
        rows = 'q,1,2,3,4,A\n"Is it\nso?",1,2,3,4,B\n' + "q,1,2,3,4,C\n" * 3
        (folder / "mmlu_dataset" / kind / f"abstract_algebra_{kind}.csv").write_text(rows)


def load_llama(folder: Path, values: Values) -> None:
    from flagperf_cases.llama2_7b_finetune.case import load_base
    from flagperf_cases.llama2_7b_finetune.data import load_data
    from flagperf_cases.llama2_7b_finetune.mmlu import original_tokens, prompts

    data = load_data(settings(values), folder)
    count = sum(len(subject.questions) for subject in data.subjects)
    for prompt in prompts(data.subjects, range(count), data.tokenizer, num_shots=5, longest=64):
        original_tokens(prompt.whole, data.tokenizer, 32)
    load_base(folder / "llama2_7b_hf", 1, torch.float32, "cpu")


# --- llama2_70b -----------------------------------------------------------------------------------------------------


def write_indexed_tokens(folder: Path, values: Values) -> None:
    from indexed_datasets import write_indexed

    rng = random.Random(0)
    write_indexed(folder / "tokens", [[rng.randrange(64) for _ in range(30)] for _ in range(20)])


def write_text(folder: Path, values: Values) -> None:
    from sentencepiece_models import train_tokenizer

    (folder / "text").mkdir()
    (folder / "text/a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 9)
    (folder / "tokenizer").mkdir()
    train_tokenizer(folder / "tokenizer/tokenizer.model")


def load_tokens(folder: Path, values: Values) -> None:
    from flagperf_cases.llama2_70b.data import load_data

    samples = load_data(values, folder)
    for row in samples.global_batch(0, 4):
        assert len(samples[row]) == values["model"]["sequence"] + 1


# --- aquila_33b -----------------------------------------------------------------------------------------------------


def _write_texts(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data/lambada_test.jsonl").write_text('{"text": "ab ba"}\n{"text": "b ab"}\n')
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer/vocab.json").write_text('{"a": 0, "b": 1, "ab": 2, "\\u0120": 3}')
    (folder / "tokenizer/merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "tokenizer/special_tokens.txt").write_text("[MASK]\n[CLS]\n</s>\n")


def write_shards(folder: Path, values: Values) -> None:
    from aquila_checkpoints import small_model, write_megatron

    _write_texts(folder)
    write_megatron(folder, small_model(), 2, 64, core="fused", stages=(1, 1))


def write_hf(folder: Path, values: Values) -> None:
    from aquila_checkpoints import small_model, write_huggingface

    _write_texts(folder)
    write_huggingface(folder, small_model())


def load_aquila(folder: Path, values: Values) -> None:
    from aquila_checkpoints import SMALL, small_model

    from flagperf_cases.aquila_33b.checkpoint import open_checkpoint
    from flagperf_cases.aquila_33b.data import load_data

    load_data(values, folder)
    weight = open_checkpoint(folder, values["model"]["checkpoint"], SMALL)
    for name, parameter in small_model().named_parameters():
        assert weight(name).shape == parameter.shape


def _model(values: Values) -> Values:
    return {f"model__{name}": value for name, value in values.items()}


def _aquila(checkpoint: str) -> Values:
    from aquila_checkpoints import SMALL_CHANGES

    return {**SMALL_CHANGES, "data__source": "lambada", "data__samples": 0, "model__checkpoint": checkpoint}


INDEXED = {"data__source": "indexed", "data__prefix": "tokens", "data__order": "megatron"}
FOLDERS = {
    "distilbert": DataFolder("distilbert", "standard", _model(ENCODER), write_distilbert, load_distilbert),
    "glm": DataFolder(
        "glm",
        "tiny",
        {"data__source": "record", "data__rows": 0, "data__eval_rows": 0, "model__checkpoint": True},
        write_glm,
        load_glm,
    ),
    "llama": DataFolder(
        "llama2_7b_finetune", "standard", {**_model(LLAMA), "evaluation__subjects": 1}, write_llama, load_llama
    ),
    "tokens": DataFolder("llama2_70b", "tiny", INDEXED, write_indexed_tokens, load_tokens),
    "text": DataFolder("llama2_70b", "tiny", {"data__source": "text"}, write_text, load_tokens),
    "shards": DataFolder("aquila_33b", "tiny", _aquila("megatron"), write_shards, load_aquila),
    "hf": DataFolder("aquila_33b", "tiny", _aquila("huggingface"), write_hf, load_aquila),
}


# --- damage ---------------------------------------------------------------------------------------------------------

PIECES = (
    b"",
    b"\0",
    b"\n",
    b"\r\n",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\x1b]52;c;aGk=\x07",
    b'"',
    b",",
    b"\t",
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"[]",
    b"{}",
    b"9" * 5000,
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b"\xef\xbb\xbf",
    b"\x80\x02}q\x00.",
    b"\x80\x02]r\xff\xff\xff\x7f.",
    b"PK\x05\x06" + bytes(18),
)


def damage(folder: Path, seed: str) -> str:
    """One random change of one file; says which."""
    rng = random.Random(seed)
    path = rng.choice(sorted(each for each in folder.rglob("*") if each.is_file()))
    how = rng.choice(DAMAGES)
    how(path, rng)
    return f"{how.__name__} of {path.relative_to(folder)}"


def cut_off(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def halve(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def append(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + (rng.choice(PIECES) or rng.randbytes(rng.randrange(1, 70_000))))


def put_before(path: Path, rng: random.Random) -> None:
    path.write_bytes((rng.choice(PIECES) or b"x") + path.read_bytes())


def insert(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    at = rng.randrange(len(content) + 1)
    path.write_bytes(content[:at] + rng.choice(PIECES) + content[at + rng.choice((0, 1, 4)) :])


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 3, 30))):
        content[rng.randrange(min(len(content), rng.choice((64, 4096, 1 << 30))))] = rng.randrange(256)
    path.write_bytes(content)


def replace_all(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice(PIECES))


def replace_json_value(path: Path, rng: random.Random) -> None:
    """Somewhere in a JSON file, or in the first line of one with an object on each line."""
    first, newline, rest = path.read_text(errors="replace").partition("\n")
    try:
        parsed = json.loads(first)
    except ValueError:
        return replace_all(path, rng)
    holder, key = parsed, None
    while isinstance(holder, dict | list) and holder and (key is None or rng.random() < 0.7):
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        if not isinstance(holder[key], dict | list) or not holder[key]:
            break
        if rng.random() < 0.7:
            holder, key = holder[key], None
    if key is not None:
        holder[key] = rng.choice((None, -1, 0, 1.5, True, "", "\ud800", "x" * 300, [], {}, [[]], {"a": 1}, 10**400))
    path.write_text(json.dumps(parsed) + newline + rest)
    return None


def take_another(path: Path, rng: random.Random) -> None:
    others = [each for each in path.parents[1].rglob("*") if each.is_file() and each != path]
    if others:
        shutil.copyfile(rng.choice(sorted(others)), path)


def pickle_something(path: Path, rng: random.Random) -> None:
    """In place of weights: names that are no text, values that are no tensors."""
    some = torch.zeros(2, 2)
    state = rng.choice(
        (
            {1: some},
            {"\ud800": some},
            {"a\x1b[31m": some},
            {"a": (2, 2)},
            {"module": {2: some}},
            {"module": {"transformer.layers.0.\n": some}},
            {"model": {"language_model": {3: some}}},
            {"model": {"decoder.layers.x": some}},
            [some],
            some,
            {},
        )
    )
    torch.save(state, path, _use_new_zipfile_serialization=rng.random() < 0.7)


def compress(path: Path, rng: random.Random) -> None:
    """An archive with the same content, compressed, and with much more of it."""
    with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else zipfile.ZipFile(path, "w") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()} or {"archive/data.pkl": b"\x80\x02}q\x00."}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content + bytes(rng.choice((0, 1_000_000))))


DAMAGES = (
    cut_off,
    halve,
    append,
    put_before,
    insert,
    insert,
    flip,
    flip,
    replace_all,
    replace_json_value,
    replace_json_value,
    take_another,
    pickle_something,
    compress,
)
