"""Errors that the pages of workflows and queues name are found where programs import from."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import boki
import bokiflow
import bokiflow.errors
import bokilib.errors
import bokiqueue

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("page", ["flow.md", "queue.md"])
def test_errors_on_a_page_can_be_imported_from_where_workflows_are(page: str) -> None:
    known = {
        name: one
        for module in (bokiflow.errors, bokilib.errors)
        for name, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, boki.BokiError) and one.__module__ == module.__name__
    }
    named = known.keys() & set(re.findall(r"\b[A-Z]\w+\b", (DOCS / page).read_text()))
    public = {**vars(boki), **vars(bokiqueue), **{name: getattr(bokiflow, name) for name in bokiflow.__all__}}
    assert named and {name: public.get(name) for name in named} == {name: known[name] for name in named}
