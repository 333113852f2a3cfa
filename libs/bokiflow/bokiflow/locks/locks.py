"""Locks between workflows of a book: `async with bokiflow.lock("seat 7") as number: …`.

- A lock is held by the workflow, not by a process: a takeover changes nothing, and the end of the workflow releases its locks.
- A lock is granted in the order of requests; workflows may share it. A workflow that waits appends no records.
- There are no deadlocks. A workflow that holds another lock, or is a child, waits only for workflows that started later; otherwise the
  request fails with LockRefused, and the workflow releases its locks and starts over. A workflow without locks waits for any other one.
  With `ordered=True` it always waits, for programs that acquire locks in one fixed order.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Literal, TypeAlias, cast

from boki_common.errors import InvalidArgument
from bokiflow.errors import NotInWorkflow
from bokiflow.model.lock_rules import check_name
from bokiflow.model.records import check_timeout_s
from bokiflow.runtime.calls import context
from bokiflow.runtime.instance import Instance

LockMode: TypeAlias = Literal["exclusive", "shared"]


class Lock:
    """A lock between workflows, for one `async with` at a time; made by `lock`."""

    def __init__(self, name: str, shared: bool, try_: bool, ordered: bool, timeout_s: float | None) -> None:
        self._name: Final = name
        self._shared: Final = shared
        self._try: Final = try_
        self._ordered: Final = ordered
        self._timeout_s: Final = timeout_s
        self._key = ""
        self._instance: Instance | None = None

    async def __aenter__(self) -> int:
        """Acquire the lock, and return its fencing number: each later holder of the lock has a larger one.

        Raises:
            LockRefused: the lock is held, and the workflow may not wait for it.
            TimeoutError: `timeout_s` has passed.
            NotInWorkflow: the caller is not code of a workflow.
        """
        assert not self._key, "this lock object is in use: call lock() once for each `async with`"
        instance = cast(Instance | None, context())
        if instance is None:
            raise NotInWorkflow("only code of a workflow can take a lock, outside of its steps")
        async with asyncio.timeout(self._timeout_s):
            entry = await instance.take_lock(self._name, self._shared, self._try, self._ordered)
        self._instance, self._key = instance, entry.key
        return entry.number

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
    """Return a lock between workflows, which `async with` acquires and releases.

    `async with` returns a fencing number, by which other systems can refuse late requests of an earlier holder.

    Args:
        name: the name of the lock, up to 200 bytes.
        mode: "exclusive", or "shared" with other shared holders.
        try_: raise LockRefused instead of waiting.
        ordered: wait for any holder, also with other locks; safe only if all programs acquire locks in one order.
        timeout_s: seconds to wait before TimeoutError; None waits without a limit.

    Raises:
        InvalidArgument: the name, the mode or the time-out is not valid.
    """
    if mode not in ("exclusive", "shared"):
        raise InvalidArgument(f"expected 'exclusive' or 'shared', found {mode!r}", found=mode)
    check_timeout_s(timeout_s)
    return Lock(check_name(name), mode == "shared", try_, ordered, timeout_s)
