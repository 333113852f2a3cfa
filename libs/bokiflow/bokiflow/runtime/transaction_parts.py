"""Parts of a transaction that another workflow commits, as a workflow inside that transaction sees them. Pure.

- A part begins with the context of the transaction and with all writes of earlier parts. So parts run one after the other.
- If the workflow fails, its reads count for the transaction, and its writes do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from boki_common.errors import InvalidArgument
from bokiflow.model.flow_events import EnclosingTransaction, TransactionPart

ONE_PART: Final = (
    "expected one part of a transaction at a time, found two at once: await each before the next, "
    "or move what runs at once out of the transaction"
)


class TransactionParts:
    """The parts that one workflow adds to the transaction around it.

    Attributes:
        under_way: True while a part runs.
    """

    def __init__(self, within: EnclosingTransaction | None) -> None:
        """`within`: the transaction that the workflow is a part of; None if there is none."""
        self.under_way = False
        self._within: Final = within
        self._done: Final[list[TransactionPart]] = []

    def add(self, several: Iterable[TransactionPart]) -> None:
        self._done.extend(several)

    def next(self) -> EnclosingTransaction | None:
        """Return what the next part begins with; None if the workflow is in no transaction.

        Raises:
            InvalidArgument: another part is under way.
        """
        if self._within is None:
            return None
        if self.under_way:
            raise InvalidArgument(ONE_PART)
        return EnclosingTransaction(self._within.context, (*self._within.parts, *self._done))

    def for_caller(self, *, failed: bool) -> tuple[TransactionPart, ...]:
        """Return the parts that the transaction gets when the workflow ends."""
        return tuple(TransactionPart(one.read) if failed else one for one in self._done)
