"""Reports: sections make documents of recorded runs, renderers write them. JSON is the runs themselves, for programs.

- document: the model, blocks and typed cells
- sections: parts of documents; they know runs and metrics, and no medium
- render: documents as Markdown and on terminals; nothing there knows a run
- page: which sections a page has; kinds: what differs between training and inference
- screens: what terminals show, which is a card, several runs, an alignment or a case
- checks: rules that figures keep before a page is written
- export: runs as JSON
- texts, codes, phrases: every text in both languages
"""

from flagperf.report.document import Document
from flagperf.report.export import to_json
from flagperf.report.page import page, page_document
from flagperf.report.render import to_markdown, to_terminal
from flagperf.report.screens import alignment_report, case_report, run_report
from flagperf.report.sections.alignment import alignment_to_json
from flagperf.report.sections.naming import vendor_word
from flagperf.report.sections.rows import check_layout

__all__ = [
    "Document",
    "alignment_report",
    "alignment_to_json",
    "case_report",
    "check_layout",
    "page",
    "page_document",
    "run_report",
    "to_json",
    "to_markdown",
    "to_terminal",
    "vendor_word",
]
