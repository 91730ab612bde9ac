"""GLM learns to fill the blank in a query about a passage.

In this order: training, evaluation, batches, the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from flagperf.worker import Context
from flagperf_cases.checkpoint_files import check_shapes, load_saved, shapes_of
from flagperf_cases.glm.data import (
    CHECKPOINT,
    FIT_CHECKPOINT,
    GET_CHECKPOINT,
    POSITIONS,
    Sample,
    Samples,
    load_data,
    used_weights,
    weights_file,
)
from flagperf_cases.glm.record import exact_match, f1
from flagperf_cases.loss_scaling import NamedParameters, Updater, make_updater
from flagperf_cases.models import describe_transformer, evaluation_mode
from flagperf_cases.sampler import Batch, MicroBatch, TrainingSampler, evaluation_rows, step_counts, step_loader

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

NOT_A_CANDIDATE = -10_000.0
"""Score of the padding candidates of a sample that has fewer than another one in its batch."""


def run(ctx: Context) -> None:
    config = ctx.config
    train, validation = load_data(config, ctx.data_dir)
    for samples in (train, validation):
        ctx.describe_data(samples.name, len(samples), samples.sha256)

    torch.manual_seed(config.training.seed)  # the same on every rank
    model = Glm(config.model)
    if config.model.checkpoint:
        assert ctx.data_dir is not None, "check_files requires --data-dir"
        load_checkpoint(model, ctx.data_dir / CHECKPOINT)
    model = model.to(getattr(torch, ctx.precision.storage))
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # dropout from here on, different on every rank
    describe_model(ctx, model)

    sampler = make_sampler(ctx, len(train))
    loader = training_loader(train, sampler, config.data.num_workers)
    accelerator = ctx.accelerator()
    model = accelerator.prepare(model)
    # Evaluated without the data parallel wrapper, whose forward pass could wait for a rank that has one row less.
    plain_model = accelerator.unwrap_model(model)
    updater = make_updater(
        plain_model.named_parameters(), ctx.precision, partial(make_optimizer, config=config), config.training.clip
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        updater.optimizer, partial(rate_factor, num_steps=config.training.schedule_steps // config.training.accumulate)
    )
    steps_between_evaluations = math.ceil(config.evaluation.every_samples / sampler.global_batch)

    evaluate(ctx, plain_model, validation)
    model.train()
    with ctx.training(planned_steps=sampler.planned_steps):
        for number, micro_batches in enumerate(all_steps(ctx, sampler, loader), 1):
            train_step(ctx, accelerator, model, updater, schedule, micro_batches)
            is_due = number % steps_between_evaluations == 0 or number == sampler.planned_steps
            if is_due and evaluate(ctx, plain_model, validation) >= config.evaluation.target:
                break


def train_step(
    ctx: Context, accelerator: Any, model: Any, updater: Updater, schedule: Any, micro_batches: list[dict[str, Any]]
) -> None:
    with ctx.step() as step:
        loss_sum = torch.zeros((), device=ctx.device)
        for index, batch in enumerate(micro_batches):
            is_last = index == len(micro_batches) - 1
            with nullcontext() if is_last else accelerator.no_sync(model):
                loss = (choice_losses(model, batch) * batch["weights"]).sum()
                accelerator.backward(updater.scale(loss * batch["scale"]))
            loss_sum += loss.detach()
        if updater.step():
            schedule.step()
        counts = step_counts(micro_batches)
        step.done(**counts, loss=loss_sum / max(counts["samples"], 1))


def choice_losses(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Return per sample the cross entropy of choosing the first candidate, which is the right one."""
    candidates = batch["candidates"]
    scores = model(**batch["inputs"]).view(candidates.shape).masked_fill(~candidates, NOT_A_CANDIDATE)
    return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device), reduction="none")


def make_sampler(ctx: Context, num_samples: int) -> TrainingSampler:
    """Plan as many steps as it takes to train `training.max_samples`, but no more than `training.max_steps`."""
    training = ctx.config.training
    global_batch = training.batch_size * training.accumulate * ctx.world_size
    epochs, rest = divmod(training.max_samples, num_samples)
    steps = epochs * math.ceil(num_samples / global_batch) + math.ceil(rest / global_batch)
    max_steps = min(steps, training.max_steps or steps)
    return TrainingSampler.for_run(ctx, num_samples, epochs=epochs + 1, max_steps=max_steps)


def all_steps(ctx: Context, sampler: TrainingSampler, loader: Any) -> Iterator[Any]:
    for epoch in range(sampler.epochs):
        sampler.epoch = epoch
        yield from ctx.batches(loader)


def rate_factor(step: int, num_steps: int) -> float:
    """Return the factor of the learning rate: linear warm-up over a tenth of the steps, linear decay to 0.1 over the
    rest, then flat."""
    warmup = 0.1 * num_steps
    if step <= warmup:
        return step / warmup if warmup else 1.0
    return 1 - 0.9 * min(1.0, (step - warmup) / (num_steps - warmup))


def make_optimizer(named: NamedParameters, config: Any) -> torch.optim.Optimizer:
    # A frozen model still does all the work of a step; only the weights do not change.
    rate = 0.0 if config.model.frozen else config.training.learning_rate
    groups = [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": config.training.weight_decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},  # biases and norms
    ]
    if config.training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate)
    return torch.optim.AdamW(groups, lr=rate)


def describe_model(ctx: Context, model: Any) -> None:
    describe_transformer(
        ctx,
        ctx.config.model,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matmul_parameters=matmul_parameters(ctx.config.model),
        causal=False,
    )


# --- evaluation -------------------------------------------------------------------------------------------------------

SEQUENCES_PER_QUERY = 10
"""An evaluation batch holds this many sequences for each unit of evaluation.batch_size."""


def evaluate(ctx: Context, model: Any, samples: Samples) -> float:
    """Return the accuracy over all ranks; every query is counted once."""
    num_rows = min(len(samples), ctx.config.evaluation.max_rows or len(samples))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluation_mode(model):
        guesses = best_candidates(ctx, model, samples, mine, evaluation.done)
        scores = [score_guess(samples.samples[row], guess) for row, guess in zip(mine, guesses, strict=True)]
        totals = [sum(column) for column in zip((0.0, 0.0, 0.0), *scores, strict=True)]  # a rank may have no row
        *sums, num_evaluated = ctx.sum_over_ranks(*totals, len(mine))
    accuracy, matched, overlap = (total / num_evaluated for total in sums)
    ctx.report(acc=accuracy, em=matched, f1=overlap, evaluated=num_evaluated)
    return accuracy


def best_candidates(
    ctx: Context, model: Any, samples: Samples, rows: Iterable[int], on_done: Callable[[int], None]
) -> list[int]:
    """Return the index of the best candidate of each row. A batch may end in the middle of a row's candidates."""
    pairs = [(row, index) for row in rows for index in range(len(samples.samples[row].candidates))]
    scores: list[torch.Tensor] = []
    batch_size = ctx.config.evaluation.batch_size * SEQUENCES_PER_QUERY
    for first in range(0, len(pairs), batch_size):
        batch = pairs[first : first + batch_size]
        inputs, _ = make_inputs(samples, batch)
        scores.append(model(**{name: tensor.to(ctx.device) for name, tensor in inputs.items()}))
        on_done(sum(candidate == 0 for _, candidate in batch))
    scored = zip(pairs, torch.cat(scores).tolist() if scores else (), strict=True)
    by_row = groupby(scored, key=lambda item: item[0][0])
    return [max(group, key=lambda item: item[1])[0][1] for _, group in by_row]


def score_guess(sample: Sample, guess: int) -> tuple[float, float, float]:
    """Score a guess: right by index, exact match by text, F1 by words."""
    answers = [sample.texts[index] for index in sample.right]
    text = sample.texts[guess]
    return float(guess in sample.right), exact_match(text, answers), f1(text, answers)


# --- batches ----------------------------------------------------------------------------------------------------------


def training_loader(samples: Samples, sampler: TrainingSampler, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, samples), sampler, num_workers)


def _batch(samples: Samples, micro: MicroBatch) -> Batch:
    """Make a batch. A sample with fewer candidates than another one repeats its first, which is masked out of the
    loss."""
    counts = [len(samples.samples[row].candidates) for row in micro.rows]
    widest = max(counts)
    pairs = [
        (row, index if index < count else 0)
        for row, count in zip(micro.rows, counts, strict=True)
        for index in range(widest)
    ]
    inputs, lengths = make_inputs(samples, pairs)
    is_real = [
        index < count and weight for count, weight in zip(counts, micro.weights, strict=True) for index in range(widest)
    ]
    num_tokens = sum(length for length, real in zip(lengths, is_real, strict=True) if real)
    return {
        "inputs": inputs,
        "candidates": torch.arange(widest) < torch.tensor(counts).unsqueeze(-1),
        "weights": torch.tensor(micro.weights, dtype=torch.float32),
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": len(pairs) * samples.length - num_tokens,
    }


def make_inputs(samples: Samples, pairs: Sequence[tuple[int, int]]) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Return the model's inputs for pairs of row and candidate, and the length of each sequence without padding."""
    filled = [samples.fill_blank(row, candidate) for row, candidate in pairs]
    shape, longest = (len(filled), samples.length), max(len(each.targets) for each in filled)
    tokens = torch.full(shape, samples.tokenizer.pad)
    positions, blocks = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    targets = torch.zeros(len(filled), longest, dtype=torch.long)
    target_mask = torch.zeros(len(filled), longest)
    count = torch.arange(samples.length)
    for index, each in enumerate(filled):
        context, length, num_targets = each.context, len(each.tokens), len(each.targets)
        tokens[index, :length] = torch.tensor(each.tokens)
        positions[index, :context] = count[:context]
        positions[index, context:length] = each.blank
        blocks[index, context:length] = count[1 : num_targets + 1]
        targets[index, :num_targets] = torch.tensor(each.targets)
        target_mask[index, :num_targets] = 1
    contexts = torch.tensor([each.context for each in filled])
    # Positions after an answer's end do not matter, because their targets are masked.
    answer_at = (contexts.unsqueeze(-1) + torch.arange(longest)).clamp(max=samples.length - 1)
    inputs = {
        "tokens": tokens,
        "positions": positions,
        "blocks": blocks,
        "context": contexts,
        "answer_at": answer_at,
        "targets": targets,
        "target_mask": target_mask,
    }
    return inputs, [len(each.tokens) for each in filled]


# --- model ------------------------------------------------------------------------------------------------------------

INIT_STD = 0.02


class Glm(nn.Module):  # type: ignore[misc]
    """Scores sequences: the log-probability of each one's answer, given its text."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(values.vocabulary, values.width)
        self.transformer = Transformer(values)
        self.logits = values.logits
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=INIT_STD)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for layer in self.transformer.layers:
            for output in (layer.attention.dense, layer.mlp.dense_4h_to_h):
                nn.init.normal_(output.weight, std=INIT_STD / math.sqrt(2 * values.layers))

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        blocks: torch.Tensor,
        context: torch.Tensor,
        answer_at: torch.Tensor,
        targets: torch.Tensor,
        target_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return one score per sequence, summed in float32 or better.

        `tokens`, `positions`, `blocks` are [sequences, length]; `context` is the number of positions that are visible
        from everywhere; `answer_at`, `targets` and `target_mask` are [sequences, longest answer].
        """
        states = self.transformer(self.word_embeddings(tokens), positions, blocks, attention_mask(context, tokens))
        wide = torch.promote_types(states.dtype, torch.float32)
        return (self._log_probabilities(states, answer_at, targets).to(wide) * target_mask).sum(-1)

    def _log_probabilities(self, states: torch.Tensor, answer_at: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each target. The output layer is tied to the word embedding. With `logits`
        "all", training computes it and its log-softmax at every position and in the type of the weights, as the
        original does: its memory and time are part of what is measured."""
        sequences = torch.arange(len(states), device=states.device).unsqueeze(-1)
        if self.training and self.logits == "all":
            logits = functional.linear(states, self.word_embeddings.weight)
            return functional.log_softmax(logits, dim=-1)[sequences, answer_at, targets]
        logits = functional.linear(states[sequences, answer_at], self.word_embeddings.weight)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return functional.log_softmax(logits, dim=-1, dtype=wide).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def attention_mask(context: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mask [sequences, 1, from, to]: the text is visible from everywhere, an answer token only from later
    positions."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    causal = index.unsqueeze(0) <= index.unsqueeze(1)
    text = index < context.unsqueeze(-1)
    return (causal | text.unsqueeze(1)).unsqueeze(1)


class Transformer(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.position_embeddings = nn.Embedding(values.sequence + 1, values.width)
        self.block_position_embeddings = nn.Embedding(values.sequence + 1, values.width)
        self.dropout = nn.Dropout(values.dropout)
        self.layers = nn.ModuleList(Layer(values) for _ in range(values.layers))
        self.final_layernorm = nn.LayerNorm(values.width)
        self.recompute = values.recompute

    def forward(
        self, states: torch.Tensor, positions: torch.Tensor, blocks: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        placed = states + self.position_embeddings(positions) + self.block_position_embeddings(blocks)
        states = self.dropout(placed)
        for layer in self.layers:
            if self.recompute and self.training:
                states = checkpoint(layer, states, mask, use_reentrant=False)
            else:
                states = layer(states, mask)
        return self.final_layernorm(states)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(values.width)
        self.attention = Attention(values)
        self.post_attention_layernorm = nn.LayerNorm(values.width)
        self.mlp = Mlp(values)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = states + self.attention(self.input_layernorm(states), mask)
        return states + self.mlp(self.post_attention_layernorm(states))


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.heads = values.heads
        self.query_key_value = nn.Linear(values.width, 3 * values.width)
        self.dense = nn.Linear(values.width, values.width)
        self.attention_dropout = values.attention_dropout
        self.dropout = nn.Dropout(values.dropout)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        by_head = self.query_key_value(states).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = by_head.unbind(2)
        rate = self.attention_dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
        return self.dropout(self.dense(mixed.transpose(1, 2).flatten(2)))


class Mlp(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(values.width, values.ffn)
        self.dense_4h_to_h = nn.Linear(values.ffn, values.width)
        self.dropout = nn.Dropout(values.dropout)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        inner = functional.gelu(self.dense_h_to_4h(states), approximate="tanh")
        return self.dropout(self.dense_4h_to_h(inner))


def matmul_parameters(values: Any) -> int:
    """Count the weights of the matrix products over all positions; the tied output layer counts only if computed at
    all."""
    head = values.vocabulary * values.width if values.logits == "all" else 0
    return int(values.layers * (4 * values.width**2 + 2 * values.width * values.ffn) + head)


def load_checkpoint(model: Any, folder: Path) -> None:
    """Load every weight of the model, or raise BadInput. A smaller model takes the first layers and positions; a longer
    one keeps its initial values for the positions that the checkpoint does not have."""
    path = weights_file(folder)
    own = model.state_dict()
    found = used_weights(path, load_saved(path, GET_CHECKPOINT), len(model.transformer.layers))
    for name in POSITIONS:
        if name in found and found[name].shape[1:] == own[name].shape[1:]:
            rows = found[name][: len(own[name])].to(own[name].dtype)
            found[name] = torch.cat([rows, own[name][len(rows) :]])
    check_shapes(path, shapes_of(found), shapes_of(own), FIT_CHECKPOINT)
    model.load_state_dict(found)
