"""What README.md and docs/ say of installing flagperf."""

from __future__ import annotations

import re

from page_reader import DOCS

PAGES = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
COPIES = re.compile(r"pip install (?!-e )(?:[^`\n]* )?'?\.(?:/plugins/\w+)?(?:\[[\w,]+\])?'?(?=[\s`]|$)", re.MULTILINE)


def test_a_checkout_is_installed_as_it_is_and_not_copied() -> None:
    """A copy in place of an editable installation runs old code after the next `git pull`."""
    assert COPIES.search("pip install '.[html]'") and COPIES.search("x && pip install . ./plugins/metax")
    assert not COPIES.search("pip install -e '.[html]'") and not COPIES.search("pip install ./flagperf-acme")
    found = [(page.name, match[0]) for page in PAGES for match in COPIES.finditer(page.read_text(encoding="utf-8"))]
    assert found == []
