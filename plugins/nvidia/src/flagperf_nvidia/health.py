"""When a card that answers still cannot be used, in the words that NVML and nvidia-smi share."""

from __future__ import annotations

PAGES_WAIT = "uncorrectable memory errors: pages wait to be retired, which happens when the card is reset"


def row_problem(num_uncorrectable: int, is_pending: bool, has_failed: bool) -> str:
    """From Ampere on, rows with uncorrectable errors are remapped when the card is reset. Correctable ones do no harm
    until then."""
    if has_failed:
        return "remapping of bad memory rows has failed: the card needs service"
    if is_pending and num_uncorrectable:
        rows = "1 row waits" if num_uncorrectable == 1 else f"rows wait (of {num_uncorrectable} that went bad)"
        return f"uncorrectable memory errors: {rows} to be remapped, which happens when the card is reset"
    return ""
