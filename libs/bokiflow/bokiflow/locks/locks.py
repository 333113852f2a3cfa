"""Locks between workflows of a book: `async with bokiflow.lock("seat 7") as number: …`.

- Held by the workflow, not by a process: a takeover changes nothing, and its end releases all.
- In the order in which they were asked for; many may share one. While it waits, a workflow writes nothing.
- Nobody waits for himself: who has another lock, or is a child, waits only for workflows that began later, and is else refused
  (LockRefused), to release what it has and begin again. Who has none waits for anybody. `ordered=True` waits in any case:
  for programs that take locks always in one order.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Literal, TypeAlias, cast

from boki_common.errors import InvalidArgument
from bokiflow.errors import NotInWorkflow
from bokiflow.model.lock_rules import check_name
from bokiflow.runtime.calls import context
from bokiflow.runtime.instance import Instance

LockMode: TypeAlias = Literal["exclusive", "shared"]


class Lock:
    """See the module. For one `async with` at a time."""

    def __init__(self, name: str, shared: bool, try_: bool, ordered: bool, timeout_s: float | None) -> None:
        self._name: Final = name
        self._shared: Final = shared
        self._try: Final = try_
        self._ordered: Final = ordered
        self._timeout_s: Final = timeout_s
        self._key = ""
        self._instance: Instance | None = None

    async def __aenter__(self) -> int:
        """The fencing number: whoever holds the lock after this has a larger one. Raises LockRefused, TimeoutError."""
        assert not self._key, "this lock object is in use: call lock() once for each `async with`"
        instance = cast(Instance | None, context())
        if instance is None:
            raise NotInWorkflow("only code of a workflow can take a lock, outside of its steps")
        async with asyncio.timeout(self._timeout_s):
            seat = await instance.take_lock(self._name, self._shared, self._try, self._ordered)
        self._instance, self._key = instance, seat.key
        return seat.number

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        key, self._key = self._key, ""
        assert self._instance is not None
        self._instance.unlock(key)


def lock(
    name: str,
    *,
    mode: LockMode = "exclusive",
    try_: bool = False,
    ordered: bool = False,
    timeout_s: float | None = None,
) -> Lock:
    """A lock between workflows; see the module. It gives a fencing number, for those outside who shall refuse late ones.

    Args:
        name: of up to 200 bytes.
        mode: "shared": with others that share it.
        try_: do not wait: raise LockRefused.
        ordered: wait for anybody, also with other locks.
        timeout_s: wait so long, then raise TimeoutError.
    """
    if mode not in ("exclusive", "shared"):
        raise InvalidArgument(f"expected 'exclusive' or 'shared', found {mode!r}", found=mode)
    if timeout_s is not None and timeout_s <= 0:
        raise InvalidArgument(f"expected a time-out of more than 0 s, found {timeout_s}")
    return Lock(check_name(name), mode == "shared", try_, ordered, timeout_s)
