"""Reports: sections build a document from recorded runs, renderers write it. JSON exports the runs for programs.

- document: the model, with blocks and typed cells
- sections: parts of a document; they depend on runs and metrics, not on an output format
- render: writes a document as Markdown or to a terminal; knows nothing about runs
- page: the published page of a case
- screens: what the terminal shows: the card of a run, a comparison, an alignment, a case
- checks: consistency rules for figures, checked before a page is written
- export: runs as JSON
- texts: looks up the wording of reports in the message catalogues
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
