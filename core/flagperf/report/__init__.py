"""Reports: a page for publication, tables for a terminal, JSON for programs. Pure functions of recorded runs."""

from flagperf.report.alignment import alignment_summary, alignment_to_json
from flagperf.report.export import to_json
from flagperf.report.page import page
from flagperf.report.rows import check_layout
from flagperf.report.summary import RunTable, Summary, SummaryRow, published_table, summary, summary_table
from flagperf.report.table import Table
from flagperf.report.terminal import print_summary, print_summary_table, print_table
from flagperf.report.words import vendor_word

__all__ = [
    "RunTable", "Summary", "SummaryRow", "Table", "alignment_summary", "alignment_to_json", "check_layout", "page",
    "print_summary", "print_summary_table", "print_table", "published_table", "summary", "summary_table", "to_json",
    "vendor_word",
]  # fmt: skip
