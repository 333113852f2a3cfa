"""What a bookie says of its own health: nothing, or the reasons why it is not as it should be."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """Why a bookie is not as it should be: a word for programs and a sentence for people."""

    reason: str
    text: str
