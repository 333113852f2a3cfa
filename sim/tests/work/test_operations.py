"""Records by name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_sim.work.operations import data_of, payload_of


@given(st.text("ab/.#", max_size=20))
def test_names_stand_for_every_byte_of_a_payload(text: str) -> None:
    assert payload_of(data_of(text.encode())) == text.encode()
    assert len(data_of(text.encode() + b"." * 300)) < 30
