"""llama2_7b_finetune on the CPU, without launcher and agent, and a tokenizer for it."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from case_harness import CaseHarness

_case = CaseHarness("llama2_7b_finetune")
manifest, values, settings = _case.manifest, _case.values, _case.settings
run_case, run_ranks = _case.run, _case.run_ranks

TEXTS = ("the quick brown fox jumps over the lazy dog", "Answer: A B C D", "A. one B. two C. three D. four")


def trained_tokenizer(path: Path, texts: Sequence[str] = TEXTS, num_pieces: int = 60, **settings: Any) -> Path:
    """A real SentencePiece model of a few pieces."""
    from sentencepiece import SentencePieceTrainer

    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*texts] * 20), model_writer=model, vocab_size=num_pieces, model_type="bpe",
        minloglevel=2, hard_vocab_limit=False, **settings,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    return path
