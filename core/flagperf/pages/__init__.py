"""Published pages: read, checked (`flagperf pages lint`) and imported as reference results (`flagperf import`).

- source: Markdown as headings, facts and tables, with line numbers
- words, quantities: what pages call things (words.toml); cells as numbers with units
- results, hardware: pages of training and inference; pages of the hardware and of operators
- cards, cases: cards, vendors and cases by the names that pages use
- identity, cells, mfu, hardware_checks: the checks, with the rules of pages alone; others are those of plausibility
- lint: all of them on one page
- imports: a page as reference results
"""
