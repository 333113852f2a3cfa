"""How far a bookie's denials go: the table of `member_trust`, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, decode, encode
from boki_common.ids import BookieId
from boki_ledger.metadata.member_trust import REMEMBERED, Member, Trust, joined, remember, remembered_in, trust

B1, B2, B3 = BookieId("10.0.0.1:3181"), BookieId("10.0.0.2:3181"), BookieId("6f1e4c1a-0000-4000-8000-000000000003")
LEDGER = LedgerMetadata(ensemble_size=2, write_quorum=2, ack_quorum=2, ensembles=((0, (B1, B2)),))


def foreign(made: int | None) -> Member:
    return Member(ours=False, made=made)


OURS = Member(ours=True, made=None)


def test_denials_of_our_bookies_count() -> None:
    assert trust(B1, OURS, LEDGER, ledger_made=None) is Trust.SURE


@pytest.mark.parametrize(
    ("now", "expected"), [(40, Trust.AFTER_FORCE), (41, Trust.NEVER), (7, Trust.NEVER), (None, Trust.NEVER)]
)
def test_a_remembered_member_must_have_the_cookie_it_joined_with(now: int | None, expected: Trust) -> None:
    metadata = remember(LEDGER, {B1: foreign(40)})
    assert trust(B1, foreign(now), metadata, ledger_made=100) is expected


@pytest.mark.parametrize(
    ("cookie", "ledger", "expected"),
    [
        (9, 10, Trust.AFTER_FORCE),
        (11, 10, Trust.NEVER),
        (None, 10, Trust.NEVER),
        (9, None, Trust.NEVER),
    ],
)
def test_a_member_that_nobody_remembered_must_be_older_than_the_ledger(
    cookie: int | None, ledger: int | None, expected: Trust
) -> None:
    assert trust(B1, foreign(cookie), LEDGER, ledger_made=ledger) is expected


def test_an_id_that_looks_like_ours_is_none() -> None:
    assert trust(B3, foreign(11), LEDGER, ledger_made=10) is Trust.NEVER


def test_what_is_remembered_survives_the_metadata_codec_and_other_custom_values() -> None:
    metadata = remember(replace(LEDGER, custom=(("application", b"x"),)), {B1: foreign(1), B2: foreign(2), B3: OURS})
    metadata = decode(encode(metadata))
    assert remembered_in(metadata) == {B1: 1, B2: 2}
    assert dict(metadata.custom)["application"] == b"x"


def test_a_member_that_joins_again_is_remembered_as_it_is_then() -> None:
    metadata = remember(remember(LEDGER, {B1: foreign(1), B2: foreign(2)}), {B1: foreign(9), B2: foreign(None)})
    assert remembered_in(metadata) == {B1: 9}


def test_nothing_is_written_about_our_bookies() -> None:
    assert remember(LEDGER, {B1: OURS, B2: OURS}) is LEDGER
    assert remember(LEDGER, {B1: foreign(None)}).custom == ()


def test_damaged_lines_are_left_out() -> None:
    metadata = replace(LEDGER, custom=((REMEMBERED, b"x b1\n7 b2\n8\n\xff b3\n\xb2 b4\n"),))
    assert remembered_in(metadata) == {BookieId("b2"): 7}


def test_who_joins_is_who_was_not_in_the_last_fragment() -> None:
    changed = replace(LEDGER, ensembles=(*LEDGER.ensembles, (5, (B1, B3))))
    assert joined(None, LEDGER) == (B1, B2)
    assert joined(LEDGER, changed) == (B3,)
    assert joined(changed, replace(changed, ensembles=(*changed.ensembles, (9, (B2, B3))))) == (B2,)
