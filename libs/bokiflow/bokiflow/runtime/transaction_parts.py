"""What a workflow is of a transaction that others commit, and what those were that its own transactions called. Pure.

- A part begins with what the transaction was when it was called and with all that was written in it since: so they run one after the other.
- Of what failed only that it was read goes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from boki_common.errors import InvalidArgument
from bokiflow.model.flow_events import EnclosingTransaction, TransactionPart

ONE_PART: Final = (
    "expected one part of a transaction after the other, found two at once: await one before the next, "
    "or gather what is in no transaction"
)


class TransactionParts:
    """See the module.

    Attributes:
        attempted: by transactions that the history has no end of: children of their newest attempts. under_way: whether a part is.
    """

    def __init__(self, within: EnclosingTransaction | None) -> None:
        """`within`: the transaction that the workflow is a part of."""
        self.under_way = False
        self._within: Final = within
        self._done: Final[list[TransactionPart]] = []

    def add(self, several: Iterable[TransactionPart]) -> None:
        """What the workflow did in the transaction."""
        self._done.extend(several)

    def next(self) -> EnclosingTransaction | None:
        """What a further part begins with; None: the workflow is in no transaction of others. Raises InvalidArgument: one is under way."""
        if self._within is None:
            return None
        if self.under_way:
            raise InvalidArgument(ONE_PART)
        return EnclosingTransaction(self._within.context, (*self._within.parts, *self._done))

    def for_caller(self, *, failed: bool) -> tuple[TransactionPart, ...]:
        """What goes back to the transaction when the workflow ends."""
        return tuple(TransactionPart(one.read) if failed else one for one in self._done)
