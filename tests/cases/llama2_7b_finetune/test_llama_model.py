"""llama2_7b_finetune's model: its size, its adapters, the folders it comes from and goes to, its evaluation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from case_harness import CaseHarness

from flagperf.api import precision
from flagperf_cases.llama2_7b_finetune.case import (
    ACCURACY,
    build_model,
    choose,
    describe_model,
    evaluate_loss,
    evaluate_mmlu,
    last_logits,
    matmul_parameters,
    save_merged,
    trainable,
)
from flagperf_cases.llama2_7b_finetune.data import CHECKPOINT, check_checkpoint, load_data
from flagperf_cases.llama2_7b_finetune.mmlu import Question, Subject
from flagperf_cases.models import evaluation_mode

CASE = CaseHarness("llama2_7b_finetune")


def small(**changes: Any) -> Any:
    sizes = {"layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "ffn": 24, "checkpoint": False}
    return CASE.settings("tiny", **{f"model__{key}": value for key, value in {**sizes, **changes}.items()})


def saved(data_dir: Path, max_shard_size: str = "1GB", **changes: Any) -> Any:
    """A folder of three layers, and the model that it was saved from."""
    torch.manual_seed(7)
    model = build_model(small(layers=3, **changes), precision("fp32"), None).unload()
    model.save_pretrained(data_dir / CHECKPOINT, max_shard_size=max_shard_size)
    return model


def facts(model: Any, config: Any) -> dict[str, Any]:
    """What the case tells its context about the model."""
    told: dict[str, Any] = {}
    describe_model(SimpleNamespace(config=config, describe_model=told.update), model)
    return told


def test_standard_has_the_published_numbers_of_parameters() -> None:
    config = CASE.settings("standard", model__checkpoint=False)
    with torch.device("meta"):
        model = build_model(config, precision("fp32"), None)
    assert facts(model, config) == {
        "parameters": 6_738_415_616,
        "matmul_parameters": 6_607_077_376,
        "lora_parameters": 4_194_304,
        "nominal_parameters": 7_000_000_000,
        "layers": 32,
        "heads": 32,
        "head_size": 128,
        "sequence": 512,
        "causal": True,
    }
    assert {name.split(".")[-4] for name, value in model.named_parameters() if value.requires_grad} == {
        "q_proj",
        "v_proj",
    }
    adapter = model.peft_config["default"]
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout, adapter.bias) == (8, 32, 0.05, "none")
    assert model.config.rms_norm_eps == 1e-5


@pytest.mark.parametrize("tied", [False, True])
def test_matmul_parameters_are_all_but_embedding_and_norms(tied: bool) -> None:
    config = small(tied=tied)
    model = build_model(config, precision("fp32"), None)
    products = [
        parameter.numel()
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad and "norm" not in name and "embed_tokens" not in name
    ]
    head = config.model.vocabulary * config.model.width if tied else 0  # the embedding is the head as well
    assert matmul_parameters(config.model) == sum(products) + head
    assert facts(model, config)["nominal_parameters"] is None


@pytest.mark.parametrize(
    ("name", "base", "adapters"),
    [
        ("fp32", "float32", "float32"),
        ("fp16", "float16", "float32"),
        ("bf16", "bfloat16", "bfloat16"),
        ("amp-bf16", "float32", "float32"),
    ],
)
def test_the_base_is_stored_and_the_adapters_are_trained_as_the_precision_says(
    name: str, base: str, adapters: str
) -> None:
    model = build_model(small(), precision(name), None)
    assert {parameter.dtype for parameter in trainable(model)} == {getattr(torch, adapters)}
    frozen = {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad}
    assert frozen == {getattr(torch, base)}
    assert model.get_base_model().model.rotary_emb.inv_freq.dtype == torch.float32


# --- folders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_shard_size", ["1GB", "4KB"])
def test_a_folder_is_read_whole_or_in_shards(tmp_path: Path, max_shard_size: str) -> None:
    original = saved(tmp_path, max_shard_size)
    config = small(layers=3, checkpoint=True)
    files = check_checkpoint(tmp_path / CHECKPOINT, vars(config.model))
    assert (len(files) > 3) == (max_shard_size == "4KB")
    model = build_model(config, precision("fp32"), tmp_path).unload()
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_smaller_model_takes_the_first_layers(tmp_path: Path) -> None:
    original = saved(tmp_path)
    model = build_model(small(layers=1, checkpoint=True), precision("bf16"), tmp_path).unload()
    assert len(model.model.layers) == 1
    expected = original.model.layers[0].mlp.up_proj.weight.to(torch.bfloat16)
    assert torch.equal(model.model.layers[0].mlp.up_proj.weight, expected)


def test_the_merged_folder_gives_the_same_logits_in_transformers(tmp_path: Path) -> None:
    saved(tmp_path / "data")
    (tmp_path / "data" / CHECKPOINT / "tokenizer.model").write_bytes(b"pieces")
    model = build_model(small(layers=3, checkpoint=True), precision("fp32"), tmp_path / "data").eval()
    generator = torch.Generator().manual_seed(3)
    for parameter in trainable(model):
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    tokens = torch.arange(40).view(2, 20)
    with torch.no_grad(), model.disable_adapter():
        before = model(input_ids=tokens).logits
    expected = model(input_ids=tokens).logits
    assert (expected - before).abs().max() > 0.05  # the adapters do something
    save_merged(model, tmp_path / "merged", tmp_path / "data" / CHECKPOINT)
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert type(merged) is transformers.LlamaForCausalLM
    torch.testing.assert_close(merged(input_ids=tokens).logits, expected, rtol=1e-4, atol=1e-5)
    assert (tmp_path / "merged" / "tokenizer.model").read_bytes() == b"pieces"


def test_out_of_memory_while_weights_are_loaded_is_not_said_to_be_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)

    def full(*_args: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", full)
    with pytest.raises(torch.OutOfMemoryError):
        build_model(small(checkpoint=True), precision("fp32"), tmp_path)


# --- evaluation -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    model = build_model(CASE.settings("tiny", lora__dropout=0.5), precision("fp32"), None)
    for parameter in trainable(model):
        parameter.data = torch.randn_like(parameter) * 0.1
    return model


def context(batch_size: int = 3, **changes: Any) -> Any:
    """As much of a Context as evaluation needs, on one rank; what is reported is kept."""
    from contextlib import nullcontext

    found = SimpleNamespace(
        device="cpu",
        rank=0,
        world_size=1,
        config=CASE.settings("tiny", evaluation__batch_size=batch_size, **changes),
        evaluation=lambda planned_rows: nullcontext(SimpleNamespace(done=lambda rows: None)),
        sum_over_ranks=lambda *values: list(values),
        values={},
        parts={},
    )
    found.report = lambda **values: found.values.update(values)
    found.report_parts = lambda name, by, values: found.parts.update({(name, by): values})
    return found


def test_padded_prompts_give_the_logits_of_each_prompt_alone(model: Any) -> None:
    tokens = [[0, *range(2, 2 + length)] for length in (30, 7, 12, 30)]
    with evaluation_mode(model):
        together = last_logits(context(), model, tokens)
        for row, each in zip(together, tokens, strict=True):
            alone = model(input_ids=torch.tensor([each])).logits[0, -1]
            torch.testing.assert_close(row, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_answers_come_in_the_order_of_the_questions(model: Any, batch_size: int) -> None:
    letters = (5, 9, 20, 3)
    tokens = [[0, *range(2, 2 + length)] for length in (30, 7, 12, 30, 25)]
    with evaluation_mode(model):
        logits = [model(input_ids=torch.tensor([each])).logits[0, -1] for each in tokens]
        done: list[int] = []
        chosen = choose(context(batch_size), model, tokens, letters, done.append)
        assert [choice.letter for choice in chosen] == [int(each[list(letters)].argmax()) for each in logits]
        assert [choice.token for choice in chosen] == [int(each.argmax()) for each in logits]
        assert (sum(done), max(done)) == (5, min(5, batch_size))


def test_no_part_is_in_training_mode_while_loss_and_answers_are_taken(model: Any) -> None:
    ctx = context(data__eval_rows=4, evaluation__questions=2)
    data = load_data(ctx.config, None)
    modes: list[bool] = []
    hook = model.register_forward_pre_hook(
        lambda module, _inputs: modes.append(any(part.training for part in module.modules()))
    )
    for evaluate in (
        lambda: evaluate_loss(ctx, model, data.validation, "val_loss"),
        lambda: evaluate_mmlu(ctx, model, data),
    ):
        model.train()
        modes.clear()
        evaluate()
        assert modes and not any(modes)
        assert all(part.training for part in model.modules())
    hook.remove()


class Oracle(torch.nn.Module):
    """Answers with the word after the last question mark: `is it? C` has the answer C."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        (self.mark,) = tokenizer.encode("?")
        self.num_tokens = tokenizer.num_tokens

    def forward(self, input_ids: Any, logits_to_keep: Any, use_cache: bool) -> Any:
        logits = torch.zeros(*input_ids.shape, self.num_tokens)
        for row, ids in enumerate(input_ids.tolist()):
            for position in range(len(ids)):
                marks = [index for index in range(position) if ids[index] == self.mark]
                if marks:
                    logits[row, position, ids[marks[-1] + 1]] = 1.0
        return SimpleNamespace(logits=logits[:, logits_to_keep])


def test_accuracy_is_given_for_all_by_category_and_by_subject() -> None:
    """An oracle that is told the answer, three times wrongly: 2 of 4, 3 of 4 and 2 of 2 are right."""
    from flagperf_cases.llama2_7b_finetune.data import WordTokenizer
    from flagperf_cases.llama2_7b_finetune.mmlu import prompt_text

    def subject(name: str, category: str, told: str, right: str) -> Subject:
        questions = tuple(
            Question(f"is it? {word}", ("w", "x", "y", "z"), "ABCD".index(letter))
            for word, letter in zip(told, right, strict=True)
        )
        return Subject(name, category, (Question("is it? A", ("w", "x", "y", "z"), 0),) * 5, questions)

    subjects = [
        subject("law", "people", "ABCD", "ABDC"),
        subject("logic", "numbers", "AAAA", "AABA"),
        subject("sets", "numbers", "DD", "DD"),
    ]
    tokenizer = WordTokenizer([prompt_text(each, each.examples, each.questions[0]) for each in subjects])
    longest = len(tokenizer.encode(prompt_text(subjects[0], subjects[0].examples, subjects[0].questions[0])))
    ctx = context(evaluation__longest_prompt=longest)  # one too short for BOS: every prompt loses one example
    evaluate_mmlu(ctx, Oracle(tokenizer), SimpleNamespace(subjects=subjects, tokenizer=tokenizer))
    assert ctx.values == {
        ACCURACY: 7 / 10,
        "mmlu_macro": pytest.approx((0.5 + 0.75 + 1) / 3),
        "mmlu_shots": 4,
        "mmlu_cut": 10,
        "mmlu_original": 7 / 10,
        "evaluated": 10,
        "correct": 7,
    }
    assert ctx.parts[ACCURACY, "category"] == {"people": 0.5, "numbers": 5 / 6}
    assert ctx.parts[ACCURACY, "subject"] == {"law": 0.5, "logic": 0.75, "sets": 1.0}


def test_the_original_rule_takes_the_question_away_and_asks_for_the_letter_of_all_tokens() -> None:
    """The oracle names the word after the last question mark, of the four letters or not. With the question gone it
    has the last example's, and with all examples gone it has nothing."""
    from flagperf_cases.llama2_7b_finetune.data import WordTokenizer
    from flagperf_cases.llama2_7b_finetune.mmlu import prompt_text

    options = ("w", "x", "y", "z")
    example = Question("is it? A", options, 0)
    short, other = Question("is it? B", options, 1), Question("is it? w", options, 0)
    long = Question("is it? C\n\n" + "so " * 60 + "?", options, 2)
    subject = Subject("law", "people", (example,) * 5, (short, other, long))
    tokenizer = WordTokenizer([prompt_text(subject, subject.examples, each) for each in subject.questions])

    def figures(sequence: int) -> tuple[float, float]:
        ctx = context(model__sequence=sequence)
        evaluate_mmlu(ctx, Oracle(tokenizer), SimpleNamespace(subjects=[subject], tokenizer=tokenizer))
        return ctx.values[ACCURACY], ctx.values["mmlu_original"]

    lengths = [len(tokenizer.encode(prompt_text(subject, subject.examples, each))) + 1 for each in subject.questions]
    # Whole prompts. After `so so ?` comes `A.`, whose letter is A: wrong. The word w is not a letter, and of the four
    # letters, all with a logit of 0, A comes first.
    assert figures(lengths[2]) == (2 / 3, 1 / 3)
    # What is cut from the first two is examples, and from the last one its first half: nothing changes.
    assert figures(lengths[0] - 1) == (2 / 3, 1 / 3)
    # Only `The following ... about law.` is left of all three.
    assert figures(16) == (2 / 3, 0)
    ctx = context(evaluation__original_rule=False)
    evaluate_mmlu(ctx, Oracle(tokenizer), SimpleNamespace(subjects=[subject], tokenizer=tokenizer))
    assert "mmlu_original" not in ctx.values
