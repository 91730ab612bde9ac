"""Documents as text. What is imported here is the document, the catalogue of texts, and nothing of runs or metrics."""

from flagperf.report.render.markdown import to_markdown
from flagperf.report.render.terminal import to_terminal

__all__ = ["to_markdown", "to_terminal"]
