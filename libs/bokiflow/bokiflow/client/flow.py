"""The client of workflows: start a workflow once by its id, get its result, find and list workflows of a book.

    flow = Flow(app, client.book("shop"))
    handle = await flow.start(checkout.call(order), id=f"order-{order.id}")
    print(await handle.result())

The client runs no workflow itself; `worker.Worker` does, in this process or another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, get_args, overload

import msgspec

import boki
from boki_common.errors import Conflict, InvalidArgument
from bokiflow.client import debounce, terminating
from bokiflow.client.app import App
from bokiflow.client.handles import Handle
from bokiflow.client.results import OnBlocked, OnMissing, Results
from bokiflow.client.schedules import Schedules
from bokiflow.errors import IdExpired, IdReused, NoSuchWorkflow
from bokiflow.execute.traces import Spans, Tracing
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.history import forks, inspection
from bokiflow.history.forks import forked
from bokiflow.history.inspection import BlockedWorkflow, Known, StartedCall
from bokiflow.history.instance_state import Status
from bokiflow.history.listing import Wanted, WorkflowPage, known_page, known_workflows, parse_before
from bokiflow.model import records
from bokiflow.model.flow_events import Ended, Started
from bokiflow.model.outcomes import digest
from bokiflow.model.record_batcher import PASS_ADDRESS, naming
from bokiflow.runtime.calls import Call, Workflow, check_call
from bokilib.append.log import Log, Tokens
from bokilib.ports import BookPort, PayloadHook, TicketPort
from bokilib.records import tags
from bokilib.records.codec import Json

R = TypeVar("R")

ID_BYTES: Final = 16
TOKEN_BYTES: Final = 8
ID_CHARS: Final = 512
STATUSES: Final[frozenset[Status]] = frozenset(get_args(Status))


class Flow:
    """The client of an app's workflows in a book.

    Attributes:
        app: the workflows of this program.
        log: the log of the book.
        results: the calls that wait for ends of workflows.
        schedules: the schedules of the app.
        spans: the spans of this process.
    """

    def __init__(
        self,
        app: App,
        book: BookPort | Log,
        *,
        hook: PayloadHook | None = None,
        hosting: WorkerHost | None = None,
        random: Tokens | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """Create a client.

        Args:
            app: the workflows of this program.
            book: a `boki.Book`, or the `bokilib.Log` of one.
            hook: compresses, encrypts or stores elsewhere the payloads that are appended. Not with a `Log`, which has its own.
            hosting: the worker in this process; None if there is none.
            random: the source of random ids and tokens.
            tracing: creates spans; by default OpenTelemetry, if it is installed.
        """
        self.app: Final = app
        self.log: Final = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        self.results: Final = Results(self.log)
        self.spans: Final = Spans(tracing)
        self._hosting: Final = hosting
        self.schedules: Final = Schedules(self)
        self._random: Final = random or boki.SystemRandom()

    @property
    def group(self) -> str:
        """The name of the app."""
        return self.app.group

    async def __aenter__(self) -> Flow:
        await self.results.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.results.__aexit__(kind, error, trace)

    def token(self) -> str:
        """Return a random token."""
        return self._random.token(TOKEN_BYTES).hex()

    async def start(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        traceparent: str = "",
        due_ms: int = 0,
    ) -> Handle[R]:
        """Start a workflow, or find the one that was started with this id and call: repeated calls with an id run it once.

        A call that is cancelled may have started the workflow, which then runs; call again with the same id to know.

        Args:
            call: the workflow and its arguments.
            id: the id, up to 512 characters; by default a random one.
            attributes: up to 8 attributes to find the workflow by. They are no part of the call: if the id was started already, the
                attributes of its first start stay, and these are not recorded.
            traceparent: the W3C trace parent; by default that of a span for this start, if spans are created.
            due_ms: the value of `bokiflow.due_ms()` in the workflow: the time for which a schedule starts it.

        Returns:
            The handle of the workflow.

        Raises:
            IdReused: another call has used the id.
            IdExpired: the id was used so long ago that its result is not kept any more.
            AppendUnknown: the workflow may or may not have been started; start it again with the same id.
            InvalidArgument: the id, the call or the attributes are not valid.
            AtomicTooLarge: the arguments do not fit a record.
        """
        check_call(call)
        chosen = check_id(id) if id is not None else self._random.token(ID_BYTES).hex()
        traceparent = traceparent or self.spans.start(call.workflow.name, chosen)
        started = self.started(call, chosen, attributes or {}, traceparent)
        if records.check_time_ms("due_ms", due_ms):
            started = msgspec.structs.replace(started, due_ms=due_ms)
        place = records.InstanceStreams(chosen, self.group)
        while True:
            owner, claim = ("", 0) if self._hosting is None else self._hosting.owner_of(chosen)
            mine = msgspec.structs.replace(started, owner=owner, at_ms=self.log.now_ms() if owner else 0)
            part = records.start(mine, claim)
            try:
                with naming(f"arguments of workflow {call.workflow.name!r}", PASS_ADDRESS):
                    seqnum = await self.log.append(part, unanswered=partial(self._unanswered, chosen))
            except Conflict as conflict:
                moved = self.log.moved(part.expect, conflict)
                if place.fence in moved or not moved:
                    return await self._attach(call, mine)
                if self._hosting is not None:
                    self._hosting.lost(place.partition, claim)
                continue
            if self._hosting is not None and owner:
                self._hosting.began(mine, seqnum)
            return Handle(self, chosen, call.workflow, start=seqnum)

    def _unanswered(self, id: str, ticket: TicketPort) -> None:
        if self._hosting is not None:
            self._hosting.unsure(id, ticket)

    def started(self, call: Call[Any], id: str, attributes: Mapping[str, str], traceparent: str = "") -> Started:
        """Return the event that starts a workflow without an owner.

        Raises:
            InvalidArgument: the call, the attributes or the trace parent are not valid.
        """
        check_call(call)
        workflow = call.workflow
        return Started(
            id,
            workflow.name,
            digest(call.args),
            call.args,
            0,
            version=workflow.version,
            group=self.group,
            attributes=records.check_attributes(attributes),
            traceparent=records.check_text("a trace parent", traceparent),
            own_uniques=True,
        )

    async def _attach(self, call: Call[R], mine: Started) -> Handle[R]:
        """Return the handle of the workflow that has this id, if its call is the same."""
        state = await inspection.newest(self.log, mine.id)
        if state is None:
            raise await self._nothing(mine.id)
        there = await inspection.started_call(self.log, mine.id, state)
        if there is None:
            raise await self._nothing(mine.id)
        start = await check_same(self.log, call, mine, there)
        ended = await inspection.outcome_of(self.log, mine.id, state)
        return Handle(self, mine.id, call.workflow, start=start, ended=ended)

    async def _nothing(self, id: str) -> IdReused | IdExpired:
        """Return the error for an id that cannot be used although the book has no workflow of it."""
        async for item in self.log.book.read(tags.flow_own(id), start=1):
            if isinstance(item, boki.Record):
                return IdReused(f"the id {id!r} has the stream of another one: take another id", id=id)
        return IdExpired(
            f"the id {id!r} was used, and the result of what ended then is not kept any more: it is free in about an hour, or take "
            "another one",
            id=id,
        )

    async def fork(self, origin: str, id: str | None, before: str | None) -> tuple[str, int]:
        """Fork a workflow as `Handle.fork` does; return the new id and the seqnum of its start."""
        chosen = check_id(id) if id is not None else self._random.token(ID_BYTES).hex()
        if await inspection.newest(self.log, origin, consistency="linearizable") is None:
            raise NoSuchWorkflow(f"there is no workflow {origin!r}: was it started in this book?", id=origin)
        history = await inspection.whole_history(self.log, origin)
        made = forked(history, forks.without_family(history.started, chosen), before)
        return chosen, await forks.begin(self.log, made)

    async def terminate(self, id: str, reason: str) -> None:
        """End a workflow as `Handle.terminate` does."""
        await terminating.terminate(self.log, id, reason)

    async def debounce(
        self,
        call: Call[R],
        *,
        id: str,
        quiet_s: float,
        at_most_s: float | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Handle[R]:
        """Start a workflow once for many calls, after a quiet time, with the newest arguments and attributes.

        Args:
            call: the workflow and its arguments.
            id: the id that the calls have in common.
            quiet_s: seconds without a call after which the workflow is started.
            at_most_s: seconds after the first call after which it is started anyway; by default ten times `quiet_s`.
            attributes: up to 8 attributes to find the workflow by.

        Returns:
            The handle of the workflow that will be started.

        Raises:
            AppendUnknown: the call may or may not have been recorded; call again.
            PartlyApplied: a round of calls was started, or got the call when it may have been closed; call again.
            InvalidArgument: an argument is not valid.
            AtomicTooLarge: the arguments of the call are larger than those of a child may be.
        """
        made = debounce.checked(call, quiet_s, at_most_s, attributes)
        return Handle(self, await debounce.debounced(self, check_id(id), made), call.workflow, missing="wait")

    @overload
    def handle(self, id: str) -> Handle[Json]: ...

    @overload
    def handle(self, id: str, workflow: Workflow[..., R]) -> Handle[R]: ...

    def handle(self, id: str, workflow: Workflow[..., Any] | None = None) -> Handle[Any]:
        """Return the handle of a started workflow; with `workflow` its result is converted to that workflow's type."""
        return Handle(self, check_id(id), workflow)

    async def wait(self, id: str, start: int, *, blocked: OnBlocked = "wait", missing: OnMissing = "wait") -> Ended:
        """Wait for the end of a workflow as `Handle.result` does, and return it."""
        here = self._hosting is not None and self._hosting.runs(id)
        return await self.results.wait(id, start, follow=not here, blocked=blocked, missing=missing)

    async def known(self, id: str) -> Known | None:
        """Read the facts of a workflow; None if the book has no such workflow."""
        return await inspection.known(self.log, id)

    async def blocked(self, error: str = "") -> list[BlockedWorkflow]:
        """Read the blocked workflows of the app. `error` is the class of the error, such as "NonDeterminism"; "" matches any."""
        return [one for one in await inspection.blocked(self.log, self.group) if error in ("", one.error)]

    def list_workflows(
        self,
        *,
        status: Status | Collection[Status] = (),
        name: str = "",
        attribute: tuple[str, str] | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[Known, None]:
        """Read the facts of the workflows of the app, the newest first, as `boki flow ls` lists them.

        The log has indexes by app and by attribute, none by status or name. Without a filter the reads grow with what is taken from the
        iterator. With "running" and "blocked" alone they grow with what lives and what started within a day; with other filters with
        what the log has of the app (or of the attribute) up to the last workflow that is taken: a week by default. Each workflow that
        is listed costs the read of its end, or of its history for its locks.

        The list is read in pages, not as of one moment. A workflow that started more than a day ago, and ends or is rewritten while the
        list is read, may be missing.

        Args:
            status: the status to list, or several; by default all.
            name: the name of the function; "" lists all.
            attribute: the name and the value of an attribute to list.
            since_ms: the earliest start, in milliseconds since 1970 UTC, by the clock of the log.
            until_ms: the end of the range of starts, which is not in it.
            limit: workflows, at most; None lists all.

        Returns:
            An iterator that reads as it is asked. It may be left at any time.

        Raises:
            InvalidArgument: a filter or the limit is not valid.
        """
        if limit is not None:
            _check_limit(limit, ", or None for all")
        wanted = _wanted(status, name, attribute, since_ms, until_ms)
        return known_workflows(self.log, self.group, wanted, limit=limit)

    async def page_of_workflows(
        self,
        *,
        before: str = "",
        limit: int = 50,
        status: Status | Collection[Status] = (),
        name: str = "",
        attribute: tuple[str, str] | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> WorkflowPage:
        """Read one page of the list of `list_workflows`, for lists that people turn over, also across processes.

        Workflows that start between two pages are newer than the place where the next one begins: none shifts a page, so that no
        workflow is missing and none is on two. The exceptions are those of `list_workflows`: workflows that started more than a day ago
        and are rewritten meanwhile.

        Args:
            before: the `before` of the page before; "" begins with the newest workflow.
            limit: workflows on the page, at most.
            status: the status to list, or several; by default all.
            name: the name of the function; "" lists all.
            attribute: the name and the value of an attribute to list.
            since_ms: the earliest start, in milliseconds since 1970 UTC, by the clock of the log.
            until_ms: the end of the range of starts, which is not in it.

        Returns:
            The workflows and where the next page begins, "" after the last. A page with filters may be shorter than the limit, even
            empty, though there are more: it reads at most about 100,000 records.

        Raises:
            InvalidArgument: a filter, the limit or the place is not valid.
        """
        _check_limit(limit)
        records.check_text("a place", before)
        wanted = _wanted(status, name, attribute, since_ms, until_ms)
        place = parse_before(before) if before else None
        return await known_page(self.log, self.group, wanted, before=place, limit=limit)

    async def find(self, **attribute: str) -> list[str]:
        """Read the ids of workflows that have an attribute, or of all workflows, in the order of their starts."""
        if len(attribute) > 1:
            raise InvalidArgument(f"expected one attribute, found {sorted(attribute)}")
        records.check_attributes(attribute)
        return await inspection.ids(self.log, self.group, next(iter(attribute.items()), None))


def _check_limit(limit: object, otherwise: str = "") -> None:
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"expected a limit of at least 1{otherwise}, found {limit!r}")


def _wanted(
    status: Status | Collection[Status],
    name: str,
    attribute: tuple[str, str] | None,
    since_ms: int | None,
    until_ms: int | None,
) -> Wanted:
    """Check the filters of a list."""
    statuses = frozenset((status,) if isinstance(status, str) else status)
    if not statuses <= STATUSES:
        raise InvalidArgument(f"expected some of {sorted(STATUSES)} as status, found {sorted(statuses - STATUSES)}")
    records.check_text("a name", name)
    if attribute is not None:
        if not isinstance(attribute, tuple) or len(attribute) != 2:
            raise InvalidArgument(f"expected an attribute as a pair of its name and value, found {attribute!r:.80}")
        records.check_attributes(dict([attribute]))
    return Wanted(statuses, name, attribute, since_ms, until_ms)


async def check_same(log: Log, call: Call[Any], mine: Started, there: StartedCall) -> int:
    """Return the seqnum of the start of the workflow that has this id, if it is of the same call.

    A call is the same if its arguments have the digest of the recorded ones. Otherwise the recorded arguments are read, and both are
    compared as the workflow's function gets them.

    Raises:
        IdReused: it is of another call.
    """
    same = there.name == mine.name and there.group in ("", mine.group)
    kept = True
    if same and there.digest != mine.digest:
        args = await inspection.started_args(log, mine.id, there.start)
        kept, same = args is not None, args is not None and call.workflow.signature.same(args, mine.args)
    if not same:
        unsure = "" if kept else ", or with the same in another form, since the log does not keep its arguments"
        raise IdReused(
            f"the id {mine.id!r} is that of {there.name!r} with other arguments{unsure}: take another one",
            id=mine.id,
            expected=f"{mine.name} {mine.digest}",
            found=f"{there.name} {there.digest}",
        )
    return there.start


def check_id(id: str) -> str:
    """Return an id that is neither empty nor too long.

    Raises:
        InvalidArgument: it is, or it is no text.
    """
    records.check_text("an id", id)
    if not id or len(id) > ID_CHARS:
        shown = f"{len(id)}, which begin with {id[:80]!r}" if id else "an empty one"
        raise InvalidArgument(f"expected an id of 1 to {ID_CHARS} characters, found {shown}", found=id[:80])
    return id
