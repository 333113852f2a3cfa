"""The pages are whole by themselves: nothing is loaded from elsewhere, nothing is written into markup."""

from __future__ import annotations

import re

import pytest

from boki_gateway.pages import assets

LINK = re.compile(r"""(?:src|href)=["']([^"']+)["']|url\(([^)]+)\)|@import\s+(\S+)|from ["']([^"']+)["']""")


@pytest.mark.parametrize("name", assets.FILES)
def test_a_file_loads_nothing_from_elsewhere(name: str) -> None:
    text = assets.FILES[name].decode()
    assert text.strip()
    found = [next(filter(None, groups)) for groups in LINK.findall(text)]
    assert [link for link in found if not link.startswith(("/", "#", "${"))] == []
    assert [link for link in found if link.startswith("//")] == []


@pytest.mark.parametrize("name", [name for name in assets.FILES if name.endswith(".js")])
def test_scripts_write_text_and_no_markup(name: str) -> None:
    text = assets.FILES[name].decode()
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert forbidden not in text, forbidden


@pytest.mark.parametrize("name", [name for name in assets.FILES if name.endswith(".html")])
def test_pages_keep_to_their_policy(name: str) -> None:
    text = assets.FILES[name].decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text), "no inline code or style"
    assert 'name="viewport"' in text
    assert "<noscript>" in text


def test_types() -> None:
    assert {assets.content_type(name) for name in assets.FILES} == {
        "text/html", "text/css", "text/javascript", "image/svg+xml",
    }  # fmt: skip
