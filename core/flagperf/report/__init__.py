"""Reports: sections build a document from recorded runs, renderers write it. JSON exports the runs for programs.

- document: the model, with blocks and typed cells
- sections: parts of a document; they depend on runs and metrics, not on an output format
- render: writes a document as Markdown, as HTML or to a terminal; knows nothing about runs
- page: the published page of a case
- web_page: the page with charts
- screens: what the terminal shows: the card of a run, a comparison, an alignment, a case
- export: runs as JSON
- rows_csv: measured rows as CSV
- compare_export: comparisons as JSON and CSV
- texts: looks up the wording of reports in the message catalogues
"""

from flagperf.report.compare_export import comparison_to_csv, comparison_to_json
from flagperf.report.document import Document
from flagperf.report.export import to_json
from flagperf.report.page import page, page_document
from flagperf.report.render import to_markdown, to_terminal
from flagperf.report.rows_csv import to_csv
from flagperf.report.screens import (
    alignment_report,
    case_report,
    comparison_report,
    comparison_web_page,
    repeats_report,
    run_report,
)
from flagperf.report.sections.alignment import alignment_to_json
from flagperf.report.sections.naming import vendor_word
from flagperf.report.sections.rows import check_layout
from flagperf.report.web_page import to_html, web_document

__all__ = [
    "Document",
    "alignment_report",
    "alignment_to_json",
    "case_report",
    "check_layout",
    "comparison_report",
    "comparison_to_csv",
    "comparison_to_json",
    "comparison_web_page",
    "page",
    "page_document",
    "repeats_report",
    "run_report",
    "to_csv",
    "to_html",
    "to_json",
    "to_markdown",
    "to_terminal",
    "vendor_word",
    "web_document",
]
