"""What fits a pattern of the document is taken by the parsers and by the SDK; what is taken in the usual form fits."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.ids import SEQNUM_MAX, U64_MAX, book_id, tag_id
from boki_gateway.calls import patterns
from boki_gateway.calls.names import name_text, parse_name, parse_number

EDGES = [0, 1, 9, 10, 10**18, SEQNUM_MAX - 1, SEQNUM_MAX, SEQNUM_MAX + 1, U64_MAX - 1, U64_MAX, U64_MAX + 1, 10**20]


def fits(schema: patterns.Schema, text: str) -> bool:
    return re.fullmatch(schema["pattern"].removeprefix("^").removesuffix("$"), text) is not None


@given(st.sampled_from([0, 1]), st.integers(10, 10**20), st.integers(0, 10**21) | st.sampled_from(EDGES))
def test_digits_are_those_of_the_range(lowest: int, highest: int, number: int) -> None:
    schema = {"pattern": f"^{patterns.digits(lowest, highest)}$"}
    for one in (number, highest, highest + 1, highest - 1, lowest):
        assert fits(schema, str(one)) == (lowest <= one <= highest)
    assert not fits(schema, f"0{number}")


@pytest.mark.parametrize(
    ("schema", "lowest", "highest"),
    [(patterns.SEQNUM, 1, SEQNUM_MAX), (patterns.BOUND, 0, U64_MAX), (patterns.EVENT_ID, 0, SEQNUM_MAX)],
)
def test_numbers_fit_within_their_bounds(schema: patterns.Schema, lowest: int, highest: int) -> None:
    assert [number for number in EDGES if fits(schema, str(number))] == [
        one for one in EDGES if lowest <= one <= highest
    ]
    assert all(parse_number(str(number), "x") == number for number in EDGES if fits(schema, str(number)))


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=1_100) | st.text("~é€𝄞", max_size=260)


@given(NAMES)
def test_a_name_that_fits_is_taken_and_means_itself(text: str) -> None:
    for schema, number_of in ((patterns.BOOK, book_id), (patterns.TAG, tag_id)):
        if fits(schema, text):
            found = parse_name(text, "x")
            number_of(found)
            assert name_text(found) == text


@given(st.from_regex(patterns.TAG["pattern"], fullmatch=True))
def test_what_the_pattern_makes_is_a_tag(text: str) -> None:
    tag_id(parse_name(text, "tag"))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_names_of_characters_of_one_size_fit_up_to_the_limit(size: int) -> None:
    character = {1: "a", 2: "é", 3: "€", 4: "𝄞"}[size]
    assert len(character.encode()) == size
    for schema, most in ((patterns.BOOK, limits.BOOK_NAME_BYTES), (patterns.TAG, limits.TAG_NAME_BYTES)):
        longest = most // size
        assert fits(schema, character * longest) and not fits(schema, character * (longest + 1))
    assert not fits(patterns.WRITER, "")


@pytest.mark.parametrize("number", [0, 1, U64_MAX - 1, U64_MAX])
def test_numbers_of_books_tags_and_streams(number: int) -> None:
    assert fits(patterns.BOOK, f"~{number}")
    assert fits(patterns.TAG, f"~{number}") == (0 < number < U64_MAX)
    assert fits(patterns.STREAM, f"~{number}") == (number < U64_MAX)


@pytest.mark.parametrize("text", ["", "~", "~x", "~007"])
def test_what_names_nothing_fits_nothing(text: str) -> None:
    assert not any(fits(schema, text) for schema in (patterns.BOOK, patterns.TAG, patterns.STREAM))


@given(st.from_regex(patterns.BASE64["pattern"], fullmatch=True))
def test_base64_is_whole(text: str) -> None:
    b64decode(text, validate=True)
