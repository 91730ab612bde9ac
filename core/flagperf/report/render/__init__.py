"""Renderers: write a document as text. They import the document and the message catalogues, never runs or metrics."""

from flagperf.report.render.markdown import to_markdown
from flagperf.report.render.terminal import to_terminal

__all__ = ["to_markdown", "to_terminal"]
