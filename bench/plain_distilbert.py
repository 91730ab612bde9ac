"""The script that a user would write in place of `flagperf run distilbert`: the same libraries, model, data and steps.

python -m bench.plain_distilbert JSON      the case's values, resolved
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

from flagperf_cases.distilbert.case import build_model, padded_batch
from flagperf_cases.distilbert.data import Sentences, load_data


def main(values: dict[str, Any]) -> None:
    config = json.loads(json.dumps(values), object_hook=lambda group: SimpleNamespace(**group))
    train, validation = load_data(config, None)
    torch.manual_seed(config.training.seed)
    model = build_model(config.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.learning_rate)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    print("accuracy", accuracy(model, validation, config))
    model.train()
    for step in range(config.training.max_steps):
        rows = range(step * config.training.batch_size, (step + 1) * config.training.batch_size)
        batch = padded_batch(train, rows, config.model.sequence)
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        loss = cross_entropy(logits, batch["labels"])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print("step", step + 1, "loss", float(loss.detach()))
    print("accuracy", accuracy(model, validation, config))


def accuracy(model: Any, sentences: Sentences, config: Any) -> float:
    model.eval()
    batch = padded_batch(sentences, range(config.evaluation.max_rows), config.model.sequence)
    with torch.inference_mode():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return float((logits.argmax(-1) == batch["labels"]).float().mean())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
