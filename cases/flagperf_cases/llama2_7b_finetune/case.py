"""Fine-tune Llama by LoRA on dialogues and their summaries, then ask it MMLU's questions.

In this order: training, evaluation, batches, the model.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from torch.nn.functional import cross_entropy, pad
from transformers import LlamaConfig, LlamaForCausalLM

from flagperf.api import Precision
from flagperf.errors import BadInput
from flagperf.worker import Context
from flagperf_cases.checkpoint_files import short_reason
from flagperf_cases.llama2_7b_finetune.data import (
    CHECKPOINT,
    GET_CHECKPOINT,
    IGNORED,
    Data,
    Rows,
    Tokenizer,
    is_used,
    load_data,
)
from flagperf_cases.llama2_7b_finetune.mmlu import Prompt, Subject, original_tokens, prompts
from flagperf_cases.models import describe_transformer, evaluation_mode
from flagperf_cases.sampler import Batch, MicroBatch, TrainingSampler, evaluation_rows, step_counts, step_loader

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def run(ctx: Context) -> None:
    config = ctx.config
    data = load_data(config, ctx.data_dir)
    for rows in (data.train, data.validation, data.test):
        ctx.describe_data(rows.name, len(rows), rows.sha256)

    torch.manual_seed(config.training.seed)  # the same on every rank: adapters start random
    model = build_model(config, ctx.precision, ctx.data_dir, ctx.device)
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # dropout from here on, different on every rank
    describe_model(ctx, model)

    trainer = Trainer(ctx, model)
    evaluate_loss(ctx, trainer.plain_model, data.validation, "val_loss")
    epochs = train(ctx, trainer, data)
    ctx.report(loss=mean_of_epochs(ctx, epochs))
    evaluate_loss(ctx, trainer.plain_model, data.test, "test_loss")
    evaluate_mmlu(ctx, trainer.plain_model, data)
    if config.model.save_to and ctx.rank == 0:
        checkpoint = ctx.data_dir / CHECKPOINT if config.model.checkpoint and ctx.data_dir else None
        save_merged(trainer.plain_model, Path(config.model.save_to), checkpoint)


def train(ctx: Context, trainer: Trainer, data: Data) -> list[EpochLosses]:
    training = ctx.config.training
    sampler = TrainingSampler.for_run(
        ctx, len(data.train), epochs=training.epochs, max_steps=training.max_steps, shuffle=training.shuffle
    )
    loader = training_loader(data.train, sampler, ctx.config.data.num_workers)
    epochs = []
    trainer.model.train()
    with ctx.training(planned_steps=sampler.planned_steps):
        for epoch in range(sampler.epochs):
            sampler.epoch = epoch
            epochs.append(EpochLosses(ctx.device))
            for micro_batches in ctx.batches(loader):
                epochs[-1].add(*trainer.step(micro_batches))
            trainer.schedule.step()
            evaluate_loss(ctx, trainer.plain_model, data.validation, "val_loss")
    return epochs


class Trainer:
    """Holds the model on its device, with its optimizer, schedule and loss scaler."""

    def __init__(self, ctx: Context, model: Any) -> None:
        self._ctx = ctx
        self._accelerator = ctx.accelerator()
        self.model = self._accelerator.prepare(model)  # before the optimizer: moving a model may replace its weights
        # Evaluated without the data parallel wrapper, whose forward pass could wait for a rank that has one row less.
        self.plain_model = self._accelerator.unwrap_model(self.model)
        training = ctx.config.training
        # A frozen model still does all the work of a step; only its adapters do not change.
        rate = 0.0 if ctx.config.model.frozen else training.learning_rate
        # Not prepared by accelerate, whose wrapper looks for a package at every step: 1.5 % of a step of 35 ms.
        self._optimizer = torch.optim.AdamW(trainable(self.model), lr=rate, weight_decay=training.weight_decay)
        self.schedule = torch.optim.lr_scheduler.StepLR(self._optimizer, step_size=1, gamma=training.decay)
        self._scaler = ctx.gradient_scaler()  # small gradients underflow on their way through a float16 base

    def step(self, micro_batches: list[dict[str, Any]]) -> tuple[torch.Tensor, int]:
        """Make one optimizer step. Return the sum of the losses of this rank's real rows, and their number."""
        with self._ctx.step() as step:
            loss_sum = torch.zeros((), device=self._ctx.device)
            for index, batch in enumerate(micro_batches):
                is_last = index == len(micro_batches) - 1
                with nullcontext() if is_last else self._accelerator.no_sync(self.model):
                    loss = sum_of_losses(self.model(input_ids=batch["input_ids"], use_cache=False).logits, batch)
                    self._scaler.scale(loss * batch["scale"]).backward()
                loss_sum += loss.detach()
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._optimizer.zero_grad()
            counts = step_counts(micro_batches)
            step.done(**counts, loss=loss_sum / max(counts["samples"], 1))
        return loss_sum, counts["samples"]


def sum_of_losses(logits: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """Add up the losses of the rows of a batch; a row's loss is the mean over all its positions but the first. Repeated
    rows have no labels.

    The labels are shifted rather than the logits, which would be copied.
    """
    expected = pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
    total = cross_entropy(logits.float().flatten(0, 1), expected.flatten(), reduction="sum", ignore_index=IGNORED)
    return total / (logits.shape[1] - 1)


class EpochLosses:
    """Adds up the losses of this rank, which are read after training."""

    def __init__(self, device: str) -> None:
        self.total = torch.zeros((), device=device)
        self.rows = 0

    def add(self, loss_sum: torch.Tensor, rows: int) -> None:
        self.total += loss_sum
        self.rows += rows


def mean_of_epochs(ctx: Context, epochs: list[EpochLosses]) -> float:
    """Return the mean over epochs of the mean over their rows."""
    sums = ctx.sum_over_ranks(*(float(epoch.total) for epoch in epochs), *(epoch.rows for epoch in epochs))
    totals, rows = sums[: len(epochs)], sums[len(epochs) :]
    return sum(total / count for total, count in zip(totals, rows, strict=True)) / len(epochs)


def describe_model(ctx: Context, model: Any) -> None:
    """Describe the base as the model; the adapters count separately."""
    adapters = sum(parameter.numel() for parameter in trainable(model))
    base = sum(parameter.numel() for parameter in model.parameters()) - adapters
    describe_transformer(
        ctx,
        ctx.config.model,
        parameters=base,
        matmul_parameters=matmul_parameters(ctx.config.model),
        causal=True,
        nominal_parameters=NOMINAL_PARAMETERS.get(base),
        lora_parameters=adapters,
    )


# --- evaluation -------------------------------------------------------------------------------------------------------

ACCURACY = "acc(MMLU)"


def evaluate_loss(ctx: Context, model: Any, rows: Rows, name: str) -> None:
    """Report the mean over all rows, each on exactly one rank."""
    values = ctx.config.evaluation
    num_rows = min(len(rows), values.max_rows or len(rows))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluation_mode(model):
        total = torch.zeros((), device=ctx.device)
        for first in range(0, len(mine), values.batch_size):
            batch = stack_rows(rows, mine[first : first + values.batch_size]).to(ctx.device)
            logits = model(input_ids=batch, use_cache=False).logits[:, :-1].float()
            losses = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
            total += losses / (rows.sequence - 1)
            evaluation.done(len(batch))
        loss, evaluated = ctx.sum_over_ranks(float(total), len(mine))
    ctx.report(**{name: loss / evaluated})


def evaluate_mmlu(ctx: Context, model: Any, data: Data) -> None:
    """Ask the questions. The answer is the letter with the largest of the four logits. With `evaluation.original_rule`
    the same questions are graded as the original benchmark does too."""
    values, subjects, tokenizer = ctx.config.evaluation, data.subjects, data.tokenizer
    num_questions = sum(len(subject.questions) for subject in subjects)
    if not num_questions:
        return
    mine = evaluation_rows(num_questions, ctx.rank, ctx.world_size)
    planned_rows = num_questions * (2 if values.original_rule else 1)
    with ctx.evaluation(planned_rows=planned_rows) as evaluation, evaluation_mode(model):
        asked = list(prompts(subjects, mine, tokenizer, num_shots=values.shots, longest=values.longest_prompt))
        letters = tokenizer.answers().letters
        chosen = choose(ctx, model, [prompt.tokens for prompt in asked], letters, evaluation.done)
        right = [choice.letter == prompt.answer for prompt, choice in zip(asked, chosen, strict=True)]
        correct = [
            sum(ok for prompt, ok in zip(asked, right, strict=True) if prompt.subject == index)
            for index in range(len(subjects))
        ]
        shots = sum(prompt.num_shots for prompt in asked)
        cut = sum(prompt.num_shots < values.shots for prompt in asked)
        *correct_over_ranks, shots_over_ranks, cut_over_ranks = ctx.sum_over_ranks(*correct, shots, cut)
        if values.original_rule:
            report_original(ctx, model, asked, chosen, tokenizer, evaluation.done)
    report_mmlu(ctx, subjects, correct_over_ranks, shots_over_ranks, cut_over_ranks)


def report_original(
    ctx: Context,
    model: Any,
    asked: Sequence[Prompt],
    chosen: Sequence[Choice],
    tokenizer: Tokenizer,
    on_done: Callable[[int], None],
) -> None:
    """Prompts are cut to the length of a training row, and of all tokens the letter has to have the largest logit.
    Prompts that the cut leaves as they are were asked already."""
    letters = tokenizer.answers().letters
    cut = [original_tokens(prompt.whole, tokenizer, ctx.config.model.sequence) for prompt in asked]
    others = [index for index, prompt in enumerate(asked) if cut[index] != prompt.tokens]
    on_done(len(asked) - len(others))
    again = choose(ctx, model, [cut[index] for index in others], letters, on_done)
    choices = {**dict(enumerate(chosen)), **dict(zip(others, again, strict=True))}
    right = sum(choices[index].token == letters[prompt.answer] for index, prompt in enumerate(asked))
    right_over_ranks, num_questions = ctx.sum_over_ranks(right, len(asked))
    ctx.report(mmlu_original=right_over_ranks / num_questions)


class Choice(NamedTuple):
    letter: int
    """Index of the letter with the largest of the four logits."""
    token: int
    """The token with the largest logit of the whole vocabulary."""


def choose(
    ctx: Context, model: Any, asked: Sequence[list[int]], letters: Sequence[int], on_done: Callable[[int], None]
) -> list[Choice]:
    """Choose a letter and a token for each prompt, in the order of `asked`. Batches hold prompts of similar length, the
    longest first, so that running out of memory shows at once."""
    chosen = [Choice(-1, -1)] * len(asked)
    order = sorted(range(len(asked)), key=lambda index: -len(asked[index]))
    size = ctx.config.evaluation.batch_size
    for first in range(0, len(order), size):
        indices = order[first : first + size]
        logits = last_logits(ctx, model, [asked[index] for index in indices])
        by_letter, by_token = logits[:, list(letters)].argmax(-1).tolist(), logits.argmax(-1).tolist()
        for index, letter, token in zip(indices, by_letter, by_token, strict=True):
            chosen[index] = Choice(letter, token)
        on_done(len(indices))
    return chosen


def last_logits(ctx: Context, model: Any, tokens: Sequence[list[int]]) -> torch.Tensor:
    """Return the logits after the last token of each prompt. Attention is causal, so the padding after it changes
    nothing."""
    last = torch.tensor([len(each) - 1 for each in tokens])
    batch = torch.zeros(len(tokens), int(last.max()) + 1, dtype=torch.long)
    for index, each in enumerate(tokens):
        batch[index, : len(each)] = torch.tensor(each)
    positions, place = (found.to(ctx.device) for found in last.unique(return_inverse=True))
    logits = model(input_ids=batch.to(ctx.device), use_cache=False, logits_to_keep=positions).logits
    return logits[torch.arange(len(tokens), device=ctx.device), place].float()


def report_mmlu(ctx: Context, subjects: Sequence[Subject], correct: Sequence[float], shots: float, cut: float) -> None:
    asked = [len(subject.questions) for subject in subjects]
    by_subject = {subject.name: right / count for subject, right, count in zip(subjects, correct, asked, strict=True)}
    by_category = {}
    for category in dict.fromkeys(subject.category for subject in subjects):
        own = [index for index, subject in enumerate(subjects) if subject.category == category]
        by_category[category] = sum(correct[index] for index in own) / sum(asked[index] for index in own)
    ctx.report(**{ACCURACY: sum(correct) / sum(asked), "evaluated": sum(asked), "correct": sum(correct)})
    ctx.report(mmlu_macro=sum(by_subject.values()) / len(by_subject), mmlu_shots=shots / sum(asked), mmlu_cut=cut)
    ctx.report_parts(ACCURACY, "category", by_category)
    ctx.report_parts(ACCURACY, "subject", by_subject)


# --- batches ----------------------------------------------------------------------------------------------------------


def training_loader(rows: Rows, sampler: TrainingSampler, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, rows), sampler, num_workers)


def _batch(rows: Rows, micro: MicroBatch) -> Batch:
    input_ids = stack_rows(rows, micro.rows)
    labels = input_ids.clone()
    for index, weight in enumerate(micro.weights):
        if not weight:
            labels[index] = IGNORED
    num_tokens = micro.real_rows * rows.sequence
    return {
        "input_ids": input_ids,
        "labels": labels,
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": input_ids.numel() - num_tokens,
    }


def stack_rows(rows: Rows, numbers: Sequence[int]) -> torch.Tensor:
    return torch.stack([torch.tensor(rows[number], dtype=torch.long) for number in numbers])


# --- model ------------------------------------------------------------------------------------------------------------

NOMINAL_PARAMETERS = {6_738_415_616: 7_000_000_000}
"""Rounded counts that published pages use for their MFU."""


def build_model(config: Any, precision: Precision, data_dir: Path | None, device: str = "cpu") -> Any:
    """Build the frozen base in the precision's storage type, with adapters in the type of its master weights.

    Only the adapters are trained, so a half precision base needs no float32 copy.
    """
    dtype = getattr(torch, precision.storage)
    if config.model.checkpoint:
        assert data_dir is not None, "check_files requires --data-dir"
        base = load_base(data_dir / CHECKPOINT, config.model.layers, dtype, device)
    else:
        base = LlamaForCausalLM(model_config(config.model))
        cast(base.parameters(), dtype)
    return with_adapters(base, config.lora, getattr(torch, precision.master_weights))


def model_config(values: Any) -> LlamaConfig:
    return LlamaConfig(
        num_hidden_layers=values.layers,
        hidden_size=values.width,
        num_attention_heads=values.heads,
        num_key_value_heads=values.kv_heads,
        intermediate_size=values.ffn,
        vocab_size=values.vocabulary,
        max_position_embeddings=values.positions,
        initializer_range=values.initial_std,
        tie_word_embeddings=values.tied,
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=None,
    )


def with_adapters(base: Any, values: Any, dtype: torch.dtype) -> Any:
    """Freeze the base and add adapters. An adapter has no effect at first: its second matrix starts as zeros."""
    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=values.rank,
        lora_alpha=values.alpha,
        lora_dropout=values.dropout,
        target_modules=list(values.targets),
        bias="none",
    )
    model = get_peft_model(base, settings, autocast_adapter_dtype=False)
    cast(trainable(model), dtype)
    return model


def cast(parameters: Iterable[torch.nn.Parameter], dtype: torch.dtype) -> None:
    """Cast parameters only: `Module.to` would round the rotary frequencies, which are buffers, as well."""
    for parameter in parameters:
        parameter.data = parameter.data.to(dtype)


def trainable(model: Any) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def matmul_parameters(values: Any) -> int:
    """Count the weights of the matrix products, the output layer included."""
    keys_and_values = 2 * values.width * (values.width // values.heads) * values.kv_heads
    layer = 2 * values.width**2 + keys_and_values + 3 * values.width * values.ffn
    return int(values.layers * layer + values.width * values.vocabulary)


def load_base(folder: Path, num_layers: int, dtype: torch.dtype, device: str) -> Any:
    """Load onto the device shard by shard, so that the host never holds the whole model. Take the first layers if the
    folder has more; refuses any other weight that is missing, unknown or of another shape."""
    config = read_config(folder)
    config.num_hidden_layers = num_layers
    try:
        model, report = LlamaForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, device_map={"": device}, output_loading_info=True, local_files_only=True
        )
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read {folder}: {str(error).splitlines()[0]}; {GET_CHECKPOINT}") from None
    tied = config.tie_word_embeddings
    wrong = [*report["missing_keys"], *(n for n in report["unexpected_keys"] if is_used(n, num_layers, tied=tied))]
    if wrong:
        raise BadInput(f"{folder} does not fit the model of this run: {wrong[0]}; {GET_CHECKPOINT}")
    return model


def read_config(folder: Path) -> LlamaConfig:
    try:
        return LlamaConfig.from_pretrained(folder)
    except Exception as error:  # noqa: BLE001  transformers raises what its version happens to raise
        raise BadInput(f"cannot read {folder / 'config.json'}: {short_reason(error)}; {GET_CHECKPOINT}") from None


def save_merged(model: Any, folder: Path, tokenizer_folder: Path | None) -> None:
    """Merge the adapters into the base, and write a folder that transformers and this case can read."""
    model.merge_and_unload().save_pretrained(folder)
    for name in ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"):
        if tokenizer_folder is not None and (tokenizer_folder / name).is_file():
            shutil.copyfile(tokenizer_folder / name, folder / name)
