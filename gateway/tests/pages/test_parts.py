"""Parts of pages: what is in them stays text, and what is long says so."""

from __future__ import annotations

from boki_gateway.pages.markup import render
from boki_gateway.pages.parts import VALUE_CHARS, choice, facts, field, json_block, moment

EVIL = "<b>&\"'"


def test_fields_keep_what_was_asked() -> None:
    assert "&quot;" in render(field("book", EVIL)) and '"book"' in render(field("book", EVIL))
    made = render(choice("status", "bad", [("", "any"), ("bad", "failed")]))
    assert made.count("selected") == 1 and '<option value="bad" selected="">failed' in made


def test_moments_are_exact_for_programs() -> None:
    assert 'datetime="1970-01-01T00:00:01.500Z"' in render(moment(1_500))


def test_facts_are_a_region() -> None:
    assert render(facts([("n", "<1>")])) == (
        '<dl id="facts" class="facts" data-region=""><div><dt>n</dt><dd>&lt;1&gt;</dd></div></dl>'
    )


def test_a_long_value_is_cut_and_says_what_prints_all() -> None:
    assert "Cut" not in render(json_block([1, EVIL], "a value", "boki x"))
    cut = render(json_block("x" * (VALUE_CHARS + 9), "a value", "boki x"))
    assert f"Cut: it has {VALUE_CHARS + 11:,} characters. `boki x` prints all." in cut and len(cut) < VALUE_CHARS + 500
