"""From the beginning that a user chose to a place in each log."""

from __future__ import annotations

import pytest

from boki_common.ids import seqnum
from boki_logbook.scan.facts import Committed, TermFacts
from boki_spark.places import resolve
from boki_spark.stream_rules import EARLIEST, LATEST, Beginning


def term(number: int, log: int, end_pos: int) -> TermFacts:
    return TermFacts(number, log, ((0, 1023),), end_pos, True, end_pos, end_pos, 0, False, 0)


STATE = Committed((term(1, 0, 10), term(2, 1, 20), term(4, 0, 5)), 0)


async def seek(time_ms: int) -> dict[int, tuple[int, int]]:
    return {0: (1, time_ms)}


@pytest.mark.parametrize(
    ("chosen", "place"),
    [
        (Beginning(EARLIEST), {}),
        (Beginning(LATEST), {0: (4, 5), 1: (2, 20)}),
        (Beginning("", {1: (2, 3)}), {1: (2, 3)}),
        (Beginning("", None, 7), {0: (1, 7)}),
        (Beginning("", None, None, seqnum(2, 3)), {0: (2, 3), 1: (2, 3)}),
        (Beginning("", None, None, seqnum(9, 3)), {0: (4, 5), 1: (2, 20)}),
        (Beginning("", None, None, 1), {0: (0, 0), 1: (0, 0)}),
    ],
    ids=str,
)
async def test_every_form_of_a_beginning_names_a_place_in_each_log(
    chosen: Beginning, place: dict[int, tuple[int, int]]
) -> None:
    assert await resolve(chosen, STATE, seek) == place
