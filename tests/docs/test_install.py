"""What README.md and docs/ say of installing flagperf."""

from __future__ import annotations

import re

from page_reader import DOCS

from flagperf.spec.toml_files import read_toml

PAGES = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
COPIES = re.compile(r"pip install (?!-e )(?:[^`\n]* )?'?\.(?:/plugins/\w+)?(?:\[[\w,]+\])?'?(?=[\s`]|$)", re.MULTILINE)


def test_a_checkout_is_installed_as_it_is_and_not_copied() -> None:
    """A copy in place of an editable installation runs old code after the next `git pull`."""
    assert COPIES.search("pip install '.[html]'") and COPIES.search("x && pip install . ./plugins/metax")
    assert not COPIES.search("pip install -e '.[html]'") and not COPIES.search("pip install ./flagperf-acme")
    found = [(page.name, match[0]) for page in PAGES for match in COPIES.finditer(page.read_text(encoding="utf-8"))]
    assert found == []


def test_the_page_has_every_extra_that_is_for_users() -> None:
    extras = read_toml(DOCS.parent / "pyproject.toml")["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `flagperf\[(\w+)\]` \|", (DOCS / "install.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted({name for name, needed in extras.items() if needed} - {"light", "dev"})


def test_both_start_pages_and_the_readme_lead_to_it() -> None:
    for page, link in (
        ("README.md", "docs/install.md"),
        ("docs/index.md", "install.md"),
        ("docs/zh/index.md", "../install.md"),
    ):
        assert f"]({link})" in (DOCS.parent / page).read_text(encoding="utf-8"), page


def test_what_the_page_installs_from_wheels_is_what_a_release_is_checked_with() -> None:
    command = "flagperf-metax --find-links dist"
    for page in ("docs/install.md", "CONTRIBUTING.md", ".github/workflows/wheels.yml"):
        assert f"install {command}" in (DOCS.parent / page).read_text(encoding="utf-8"), page
