"""Deliveries: the outputs of a lane's partitions, given to plugins, and what these answer.

    deliveries = Deliveries(app, plugins, now_ms, add)
    deliveries.join(3, state.outputs)       # begins with what waits
    deliveries.look(3)                      # records of the lane were applied
    await deliveries.drain([3])             # before a release: no new calls; those that run may end
    deliveries.pause([3])                   # nothing more is added to the lane's record, until `resume`
    deliveries.leave(3)

- Only outputs whose record is in the log are delivered. `Done`, with the answers, is a part of the lane's next record, under its claim.
  So an output is answered once, by whichever owner of the partition appends that record.
- Each plugin has its own outlet of each partition. An outlet has one call of `deliver` in flight, and one more for machines set aside.
  The next call comes when the `Done` of the one before is in the log.
- A call fails if it raises anything, also SystemExit, or if it does not end in time. Then the first output is tried alone. Successes double
  the number of outputs in a call, up to half of that of the call that failed; one more is tried after many successes. So calls that are too
  slow become smaller, and few outputs come twice.
- A machine whose first output failed alone repeatedly is *set aside*: the outputs of others go on, and its own are tried one at a time,
  after pauses of up to a minute, without end. An outlet sets aside a bounded number of machines: if more fail, the plugin does, and the
  outlet waits too.
- A call that does not end when it is cancelled keeps its place: while the lane has the partition, no second one begins beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from boki_common.backoff import Backoff
from boki_common.errors import InvalidArgument
from boki_common.logs import get_logger
from boki_common.runtime.bodies import from_outside
from bokilib.stacks import stack_of
from bokirsm.errors import CommitTooLarge, DeliveryFailed
from bokirsm.machine.app import App
from bokirsm.machine.handling import COMMIT_BYTES, error_text, message
from bokirsm.machine.plugins import Delivery, Plugin, PluginDeclaration
from bokirsm.machine.refs import Ref
from bokirsm.model.events import Done, Message, MessageId, Undelivered
from bokirsm.model.outputs import PartitionOutputs, WaitingOutput
from bokirsm.model.partition_state import size_of

ATTEMPTS: Final = 3
"""Attempts of one output alone before its machine is set aside, and people can see it."""
ASIDE: Final = 16
"""Machines of an outlet that are set aside."""
FIRST_S: Final = 0.1
LIMIT_S: Final = 60.0
BATCH_BYTES: Final = 512 * 1_024
"""Bytes of the outputs in one call."""
RAISED: Final = 16
"""Calls that succeed until the next ones may have an output more."""
ID_BYTES: Final = 16
"""Bytes of the id of an output, at most."""
CANCELLED_S: Final = 1.0
"""Seconds after which a call that was cancelled and does not end can be seen."""
DRAIN_S: Final = 2.0
"""Seconds that calls may take to end before their partition is released."""
CLOSE_S: Final = 1.0

log = get_logger(__name__)


class Deliveries:
    """The outputs of a lane on their way to plugins; see the module. It belongs to one event loop."""

    def __init__(
        self,
        app: App,
        plugins: Mapping[str, Plugin[Any]],
        now_ms: Callable[[], int],
        add: Callable[[Done | Undelivered], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Begin with no partition.

        Args:
            app: of the machines.
            plugins: the objects that deliver, by stored name.
            now_ms: the clock of the log.
            add: puts an event into the lane's next record. It is called only for partitions that joined and neither left nor drain.
            failed: called with an error that is no plugin's: the lane cannot continue.
        """
        self._failed: Final = failed
        self._app: Final = app
        self._plugins: Final = plugins
        self._now_ms: Final = now_ms
        self._add: Final = add
        self._outputs: Final[dict[int, PartitionOutputs]] = {}
        self._outlets: Final[dict[int, dict[str, _Outlet]]] = {}
        self._drained: Final[set[int]] = set()
        self._unknown: Final[set[str]] = set()
        self._ending: Final[set[asyncio.Task[None]]] = set()
        """Calls that were cancelled."""

    def join(self, partition: int, outputs: PartitionOutputs) -> None:
        """Begin to deliver the outputs of a partition."""
        self._outputs[partition], self._outlets[partition] = outputs, {}
        self.look(partition)

    def leave(self, partition: int) -> None:
        """Deliver nothing more of a partition; the calls that run are cancelled."""
        self._close(partition)
        self._outputs.pop(partition, None)
        self._outlets.pop(partition, None)

    def look(self, partition: int) -> None:
        """Deliver outputs that came, and continue where some are delivered."""
        outputs = self._outputs.get(partition)
        if outputs is None or partition in self._drained:
            return
        outlets = self._outlets[partition]
        for name in outputs.waiting:
            if name not in outlets:
                plugin = self._plugins.get(name)
                if plugin is None:
                    self._warn_of_unknown(name)
                    continue
                id = f"{self._app.name}/{partition}"
                outlets[name] = _Outlet(
                    id, plugin, self._app.plugins[name], outputs, self._now_ms, self._add, self._failed
                )
        for outlet in outlets.values():
            outlet.look()

    def _warn_of_unknown(self, name: str) -> None:
        if name not in self._unknown:
            self._unknown.add(name)
            log.warning(
                "outputs wait: this program knows no such plugin; a host that does has to run",
                group=self._app.name,
                plugin=name,
            )

    async def drain(self, partitions: Collection[int]) -> None:
        """Begin no call for some partitions, and wait a moment for those that run, whose `Done` is added."""
        self._drained.update(partitions)
        outlets = [outlet for one in partitions for outlet in self._outlets.get(one, {}).values()]
        calls = [call for outlet in outlets for call in outlet.stop()]
        if calls:
            await asyncio.wait(calls, timeout=DRAIN_S)

    def pause(self, partitions: Collection[int]) -> None:
        """Deliver nothing of some partitions; the calls that run are cancelled."""
        self._drained.update(partitions)
        for one in partitions:
            self._close(one)

    def resume(self, partitions: Collection[int]) -> None:
        """Continue with partitions that were paused and not released."""
        self._drained.difference_update(partitions)
        for one in partitions:
            self.look(one)

    def _close(self, partition: int) -> None:
        outlets = self._outlets.get(partition, {})
        for outlet in outlets.values():
            self._ending.update(outlet.close())
        outlets.clear()
        for call in [one for one in self._ending if one.done()]:
            self._ending.discard(call)

    def stop(self) -> None:
        """Deliver nothing more."""
        for one in list(self._outlets):
            self.leave(one)

    async def close(self) -> None:
        """Deliver nothing more, and wait a moment for the calls that run."""
        self.stop()
        calls = [one for one in self._ending if not one.done()]
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_S)


class _Aside:
    """A machine that is set aside: when its first output is tried next, by the clock of the loop."""

    __slots__ = ("due_s", "pause")

    def __init__(self, now_s: float) -> None:
        self.pause: Final = Backoff(FIRST_S * 2**ATTEMPTS, LIMIT_S)
        self.due_s = now_s + self.pause.next()


class _Outlet:
    """The outputs of one partition for one plugin; see the module."""

    def __init__(
        self,
        id: str,
        plugin: Plugin[Any],
        declared: PluginDeclaration,
        outputs: PartitionOutputs,
        now_ms: Callable[[], int],
        add: Callable[[Done | Undelivered], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._fail: Final = failed
        self._id: Final = id
        self._plugin: Final = plugin
        self._declared: Final = declared
        self._outputs: Final = outputs
        self._now_ms: Final = now_ms
        self._add: Final = add
        self._most = self._limit = declared.most
        """Outputs in the next call, and those up to which their number doubles."""
        self._well = 0
        """Calls that succeeded."""
        self._attempts: Final[dict[MessageId, int]] = {}
        """Failed attempts of outputs that wait."""
        self._alone: Final[dict[str, int]] = {}
        """Failed attempts of the first output of a machine alone."""
        self._aside: Final[dict[str, _Aside]] = {}
        self._runs: asyncio.Task[None] | None = None
        self._runs_aside: asyncio.Task[None] | None = None
        self._calls: Final[set[asyncio.Task[None]]] = set()
        self._applied: Final = asyncio.Event()
        self._open = True
        self._stopped = False

    # -- life

    def look(self) -> None:
        """Run while there is something to deliver."""
        self._applied.set()
        if self._runs is None and self._next():
            self._runs = self._begin(self._run())

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work, name="bokirsm plugin")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is self._runs:
            self._runs = None
        if task is self._runs_aside:
            self._runs_aside = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._fail(error)
        elif self._open and not self._stopped:
            self.look()  # an output may have come after the last look of the task

    def stop(self) -> list[asyncio.Task[None]]:
        """Begin no more calls; return those that run."""
        self._stopped = True
        return list(self._calls)

    def close(self) -> list[asyncio.Task[None]]:
        """End. The calls that run are cancelled and returned; nothing of them counts."""
        self._open = False
        self._stopped = True
        for task in (self._runs, self._runs_aside, *self._calls):
            if task is not None:
                task.cancel()
        return list(self._calls)

    # -- what is delivered

    @property
    def _waiting(self) -> Mapping[MessageId, WaitingOutput]:
        return self._outputs.waiting.get(self._declared.name, {})

    def _next(self) -> list[MessageId]:
        """Return the outputs of the next call: the first ones of machines that are not set aside."""
        if self._stopped:
            return []
        found: list[MessageId] = []
        size = 0
        for id, one in self._waiting.items():
            if one.machine in self._aside:
                continue
            size += one.size
            if found and (len(found) >= self._most or size > BATCH_BYTES):
                break
            found.append(id)
        return found

    async def _run(self) -> None:
        pause = Backoff(FIRST_S, LIMIT_S)
        while batch := self._next():
            machine = self._waiting[batch[0]].machine
            error = await self._attempt(batch)
            if error is None:
                pause.reset()
                self._well += 1
                if self._well % RAISED == 0:
                    self._limit = min(self._limit + 1, self._declared.most)
                self._most = min(2 * self._most, self._limit)
                continue
            self._most, self._limit = 1, max(1, len(batch) // 2)
            if len(batch) == 1 and self._failed(machine, batch[0], error) >= ATTEMPTS and len(self._aside) < ASIDE:
                self._set_aside(machine)
                pause.reset()
                continue
            await asyncio.sleep(pause.next())

    def _set_aside(self, machine: str) -> None:
        self._aside[machine] = _Aside(asyncio.get_running_loop().time())
        if self._runs_aside is None:
            self._runs_aside = self._begin(self._run_aside())

    async def _run_aside(self) -> None:
        while self._aside and not self._stopped:
            machine, aside = min(self._aside.items(), key=lambda pair: pair[1].due_s)
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, aside.due_s - loop.time()))
            first = next((id for id, one in self._waiting.items() if one.machine == machine), None)
            error = None
            if first is not None and not self._stopped:
                error = await self._attempt([first])
            if error is None:
                del self._aside[machine]
                self.look()
            elif first is not None:
                self._failed(machine, first, error)
                aside.due_s = loop.time() + aside.pause.next()

    def _failed(self, machine: str, id: MessageId, error: DeliveryFailed) -> int:
        """Count a failed attempt of an output alone, and show it to people, each time that their number has doubled."""
        attempts = self._alone[machine] = self._alone.get(machine, 0) + 1
        rounds, rest = divmod(attempts, ATTEMPTS)
        if not rest and rounds & (rounds - 1) == 0:
            self._show(id, attempts, error)
        return attempts

    def _show(self, id: MessageId, attempts: int, error: DeliveryFailed) -> None:
        text = str(error)
        cause = error.__cause__
        log.error(
            "plugin failed repeatedly: its output waits, and is tried again",
            partition=self._id,
            plugin=self._declared.name,
            output=str(id),
            attempts=attempts,
            error=text,
            **({} if cause is None else {"stack": stack_of(cause)}),
        )
        if not self._stopped:
            self._add(Undelivered(self._id, self._declared.name, id, attempts, self._now_ms(), text))

    # -- one call

    async def _attempt(self, batch: Sequence[MessageId]) -> DeliveryFailed | None:
        """Call the plugin, and wait until what became of it is in the log. Return the error of a call that failed."""
        machines = {self._waiting[id].machine for id in batch}
        call: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._call(batch), name="bokirsm delivery")
        self._calls.add(call)
        call.add_done_callback(self._call_ended)
        await asyncio.wait({call}, timeout=self._declared.timeout_s)
        is_late = not call.done()
        if is_late:
            call.cancel()
            await self._until_ended(call, batch[0])
        error = self._error_of(call, is_late=is_late)
        if error is not None:
            for id in batch:
                self._attempts[id] = self._attempts.get(id, 0) + 1
            return error
        while any(id in self._waiting for id in batch):
            self._applied.clear()
            await self._applied.wait()
        for id in batch:
            self._attempts.pop(id, None)
        for machine in machines:
            self._alone.pop(machine, None)
        return None

    def _call_ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # `_attempt` has it, or nothing of the call counts

    async def _until_ended(self, call: asyncio.Task[None], first: MessageId) -> None:
        """Wait for the end of a call that was cancelled; show one that still runs."""
        await asyncio.wait({call}, timeout=CANCELLED_S)
        if not call.done():
            text = f"{self._too_late}, and still runs though it was cancelled"
            self._show(first, self._attempts.get(first, 0) + 1, DeliveryFailed(text))
            await asyncio.wait({call})

    @property
    def _too_late(self) -> str:
        return f"TimeoutError: deliver did not end within {self._declared.timeout_s:g} s"

    def _error_of(self, call: asyncio.Task[None], *, is_late: bool) -> DeliveryFailed | None:
        """Return the error of a call that ended."""
        if call.cancelled():
            return DeliveryFailed(self._too_late if is_late else "CancelledError: deliver was cancelled")
        found = call.exception()
        if found is None or isinstance(found, DeliveryFailed):
            return DeliveryFailed(self._too_late) if is_late and found is not None else found
        raise found  # a person ends the program

    async def _call(self, batch: Sequence[MessageId]) -> None:
        """Deliver outputs, and add what they are answered to the lane's record."""
        try:
            several = [self._delivery(id) for id in batch]
            messages = self._messages(await self._plugin.deliver(several), len(batch) * ID_BYTES)
        except BaseException as error:
            if from_outside(error):
                raise
            raise DeliveryFailed(f"{type(error).__name__}: {error_text(error)}") from error
        if self._open:
            self._add(Done(self._id, self._declared.name, tuple(batch), messages))

    def _delivery(self, id: MessageId) -> Delivery[Any]:
        one = self._waiting[id]
        codec = self._declared.events.get(one.output.event)
        if codec is None:
            raise InvalidArgument(
                f"expected an event that {self._declared.cls.__name__} delivers ({', '.join(self._declared.events)}), found "
                f"{one.output.event}, which was emitted to it: keep delivering events that wait"
            )
        return Delivery(str(id), Ref.parse(one.machine), codec.decode(one.output.body), self._attempts.get(id, 0) + 1)

    def _messages(self, answers: Any, others: int) -> tuple[Message, ...]:
        """Return answers of a plugin as messages. `others`: bytes that their record has beside them.

        Raises:
            BokiError: they are no answers, or too many.
        """
        group, _, _ = self._id.partition("/")
        found: list[Message] = []
        for one in () if answers is None else answers:
            ref, event = one if isinstance(one, tuple) and len(one) == 2 else (None, None)
            if not isinstance(ref, Ref) or ref.group != group:
                raise InvalidArgument(
                    f"expected answers as pairs of a machine of {group!r} and an event, as in [(one.machine, Sent())], found {one!r:.80}"
                )
            found.append(message(Ref.parse(str(ref)), event))
        size = others + sum(size_of(one) for one in found)
        if size > COMMIT_BYTES:
            raise CommitTooLarge(
                f"expected answers of at most {COMMIT_BYTES} bytes to a call, found {size}: answer with less, or deliver fewer by most=",
                expected=COMMIT_BYTES,
                found=size,
            )
        return tuple(found)
