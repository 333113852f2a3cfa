"""The promises of the bank, checked against the answers that clients got. Pure.

    faults = check(answers, audits, balances)       # sentences; [] if every promise holds

The balances have to be those that follow from the answers alone. So this finds a transfer that happened twice or in half, or whose
client got a wrong answer, without a look at the machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from examples.banking.app import Outcome

OPENING: Final = 1_000
"""Cents of each account at the beginning."""


class Answer(NamedTuple):
    """A transfer that a client asked for, and the answer that the client got.

    Attributes:
        id: the client, and its number of the transfer.
        source: key of an account.
        target: key of an account.
        cents: the money.
        outcome: the answer.
        again: the answer to the same question, asked once more.
    """

    id: str
    source: str
    target: str
    cents: int
    outcome: Outcome
    again: Outcome


def check(answers: Sequence[Answer], audits: Sequence[int], balances: Mapping[str, int]) -> list[str]:
    """Return the faults of a bank at the end of a trial.

    Args:
        answers: to all transfers that were asked for.
        audits: all money, as it was counted while transfers were on their way.
        balances: of the accounts at the end, by key.
    """
    total = OPENING * len(balances)
    faults = [
        f"audit {number} found {cents} of {total} cents" for number, cents in enumerate(audits, 1) if cents != total
    ]
    if sum(balances.values()) != total:
        faults.append(f"the accounts have {sum(balances.values())} of {total} cents at the end")
    expected = dict.fromkeys(balances, OPENING)
    for one in answers:
        if one.outcome != one.again:
            faults.append(f"the client of {one.id} was told {one.outcome!r}, then {one.again!r}")
        if one.outcome == "done":
            expected[one.source] -= one.cents
            expected[one.target] += one.cents
    return (
        faults
        + [
            f"account {key} has {found} cents, by the answers of all clients it has {expected[key]}"
            for key, found in balances.items()
            if found != expected[key]
        ]
        + [f"account {key} has {found} cents" for key, found in balances.items() if found < 0]
    )
