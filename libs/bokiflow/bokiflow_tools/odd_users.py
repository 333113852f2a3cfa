"""Odd code of users for the simulated workflows: each order that `oddity_of` names does one odd thing on its way.

The id of an order says which, so it is the same in each replay, and no random number of the run is drawn for it. `served` is the exact text
that the workflow has to get from it, and `recorded` the results that its history has to have, whatever worker ran it and how often:

- code that changes in place what a step, a child or a transaction got or gave, before the next attempt, run or takeover;
- results and errors of steps whose own code raises, groups of errors, SystemExit;
- an async generator that is left half-way, whose `finally` calls a step;
- attempts that hang, and delays between attempts that no float can represent;
- models with aliases, strict ones, and dataclasses in one another.

`RudeTracing` is a source of spans that raises.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Never

import bokiflow
from bokiflow import App, Retry
from bokiflow.execute.traces import NoSpan, Span
from bokilib.testing import odd_values
from bokilib.testing.odd_values import PARCEL, Basket
from bokistore import BokiStore, Transaction

ONE_IN: Final = 4
"""One of so many orders is odd."""
OFTEN: Final = 1_000
"""Attempts of a step that fails once in each process: more than there are processes."""
SOON_S: Final = 0.01
TIMEOUT_S: Final = 0.2
HUGE: Final = 1e200
"""A factor between delays whose square is no float."""
PATIENT: Final = 4
"""Attempts that fail in each process before one with a huge delay succeeds."""


class Rude(Exception):
    """An error whose text cannot be made, and whose notes are none."""

    def __init__(self) -> None:
        super().__init__(self)
        self.__notes__: Any = None

    def __str__(self) -> Never:
        raise SystemExit("no text")


class Lazy:
    """A model, by its methods, that cannot be dumped: a row of a session that is closed."""

    def model_dump(self, **options: object) -> object:
        """Raise an error."""
        raise RuntimeError("the session is closed")

    @classmethod
    def model_validate(cls, value: object) -> Lazy:
        """Return a row."""
        return cls()

    def __str__(self) -> str:
        raise RuntimeError("the session is closed")


class Leaving(Lazy):
    """A model whose serializer ends the program."""

    def model_dump(self, **options: object) -> object:
        """Raise SystemExit."""
        raise SystemExit("no dump")


class RudeTracing:
    """A source of spans that raises: each of its methods does for some spans."""

    def __init__(self) -> None:
        self._begun = 0

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> Span:
        """Begin a span, or raise."""
        self._begun += 1
        if self._begun % 3 == 0:
            raise RuntimeError("no span")
        return _RudeSpan(parent) if self._begun % 3 == 1 else NoSpan(parent)

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """Do nothing, or raise afterwards."""
        yield
        if self._begun % 5 == 0:
            raise RuntimeError("no current span")


class _RudeSpan(NoSpan):
    def fail(self, message: str) -> None:
        raise RuntimeError(message)

    def end(self) -> None:
        raise RuntimeError("no end")


class OddUsers:
    """The odd code of one process."""

    def __init__(self, app: App, store: BokiStore) -> None:
        self._tried: Final[dict[str, int]] = {}
        """Attempts of this process that failed, by order and step."""
        self._store: Final = store
        self._app: Final = app
        self._ways: Final[Mapping[str, Callable[[str], Awaitable[str]]]] = {
            "changed result": self._with_changed_results(),
            "changed arguments": self._with_changed_arguments(),
            "changed run": self._with_changed_runs(),
            "half-way": self._with_generators(),
            "no result": self._with_results_that_raise(),
            "rude error": self._with_rude_errors(),
            "impatient": self._with_odd_times(),
            "model": self._with_models(),
        }
        assert list(self._ways) == list(ODDITIES)

    async def serve(self, order: str) -> str:
        """Do the odd thing of an order, as a part of its workflow; return what came out."""
        return await self._ways[oddity_of(order)](order)

    def _failed(self, what: str, order: str) -> int:
        """Count an attempt of this process; return how many there were before."""
        key = f"{what} {order}"
        self._tried[key] = self._tried.get(key, 0) + 1
        return self._tried[key] - 1

    def _with_changed_results(self) -> Callable[[str], Awaitable[str]]:
        @self._app.step
        async def load(order: str) -> dict[str, Any]:
            return {"lines": ["apple"], "of": {"order": [order]}}

        @self._app.step
        async def pages(order: str) -> list[Any]:
            return [["apple"], {"of": [order]}]

        @self._app.step
        async def basket(order: str) -> Basket:
            return odd_values.basket(order)

        @self._app.workflow
        async def child(order: str) -> list[list[str]]:
            return [["apple"]]

        async def way(order: str) -> str:
            loaded = await load(order)
            loaded["lines"].append("gift")
            loaded["of"]["order"].clear()
            paged = await pages(order)
            paged[0].append("gift")
            paged[1]["of"].append("gift")
            taken = await basket(order)
            taken.lines[0].notes.append("gift")
            taken.labels["of"].append("gift")
            own = await child(order)
            own[0].append("gift")
            found = (
                loaded["lines"],
                paged[0],
                paged[1]["of"][1:],
                taken.lines[0].notes[1:],
                taken.labels["of"][1:],
                own[0],
            )
            return " ".join(",".join(one) for one in found)

        return way

    def _with_changed_arguments(self) -> Callable[[str], Awaitable[str]]:
        @self._app.step(retry=Retry(attempts=OFTEN, delay_s=SOON_S, backoff=1.0))
        async def mail(order: str, to: list[str], basket: Basket) -> str:
            got = ",".join([*to, *basket.labels["of"]])
            to.clear()
            basket.labels["of"].append("again")
            if not self._failed("mail", order):
                raise ConnectionError("the first attempt of each process")
            return got

        async def way(order: str) -> str:
            to, basket = ["ann", "bob"], Basket([], {"of": ["cleo"]})
            mailing = asyncio.ensure_future(mail(order, to, basket))
            await asyncio.sleep(0)
            to.append("later")
            basket.labels["of"].append("later")
            return await mailing

        return way

    def _with_changed_runs(self) -> Callable[[str], Awaitable[str]]:
        async def note(tx: Transaction, order: str, lines: list[str]) -> list[str]:
            before: Any = await tx["odd/notes"].get("last", [])
            before.append("never")
            if not self._failed("note", order):
                await self._store.object("odd/notes").inc("runs")  # this run loses
            lines.append("run")
            given: Any = lines
            tx["odd/notes"].set("last", given)
            lines.append("after it was set")
            stored: Any = await tx["odd/notes"].get("last")
            return [*lines, *stored]

        async def way(order: str) -> str:
            lines = ["begun"]
            found = await bokiflow.transact(self._store, note, order, lines)
            found.append("returned")
            return ",".join([*found, *lines])

        return way

    def _with_generators(self) -> Callable[[str], Awaitable[str]]:
        @self._app.step
        async def release(order: str) -> str:
            return f"released {order}"

        async def way(order: str) -> str:
            released: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            async def seats() -> AsyncIterator[int]:
                try:
                    for number in range(3):
                        yield number
                finally:
                    released.set_result(await release(order))

            async for number in seats():
                if number == 1:
                    break
            return await released

        return way

    def _with_results_that_raise(self) -> Callable[[str], Awaitable[str]]:
        @self._app.step
        async def lazy(order: str) -> Any:
            return {"row": [Lazy()]}

        @self._app.step
        async def leaving(order: str) -> Any:
            return {"row": [Leaving()]}

        async def way(order: str) -> str:
            return f"{await _raised(lazy, order)} {await _raised(leaving, order)}"

        return way

    def _with_rude_errors(self) -> Callable[[str], Awaitable[str]]:
        @self._app.step
        async def rude(order: str) -> None:
            raise Rude

        @self._app.step
        async def several(order: str) -> None:
            raise ExceptionGroup("several", [ValueError("\ud800"), KeyError(Lazy())])

        @self._app.step
        async def leave(order: str) -> None:
            raise SystemExit(order)

        async def way(order: str) -> str:
            return " ".join([await _raised(step, order) for step in (rude, several, leave)])

        return way

    def _with_odd_times(self) -> Callable[[str], Awaitable[str]]:
        @self._app.step(retry=Retry(attempts=OFTEN, delay_s=SOON_S, backoff=HUGE, most_s=2 * SOON_S))
        async def poll(order: str) -> str:
            if self._failed("poll", order) < PATIENT:
                raise ConnectionError("not yet")
            return "polled"

        @self._app.step(timeout_s=TIMEOUT_S, retry=Retry(attempts=OFTEN, delay_s=0.0))
        async def hang(order: str) -> str:
            if not self._failed("hang", order):
                await asyncio.Event().wait()
            return "awake"

        async def way(order: str) -> str:
            return f"{await poll(order)} {await hang(order)}"

        return way

    def _with_models(self) -> Callable[[str], Awaitable[str]]:
        async def parcel(order: str) -> Any:
            return odd_values.parcel(order)

        async def address(of: Any) -> str:
            return f"{of.to_whom} {of.coupon} {of.lines}"

        parcel.__annotations__["return"] = address.__annotations__["of"] = PARCEL
        wrapped, addressed = self._app.step(parcel), self._app.step(address)

        async def way(order: str) -> str:
            made = await wrapped(order)
            made.lines[0].append("gift")
            return await addressed(made)

        return way


async def _raised(step: Callable[[str], Awaitable[object]], order: str) -> str:
    """Return the name of the class of the error that a step raises."""
    try:
        return f"returned {await step(order)!r}"
    except Exception as error:  # noqa: BLE001 - whatever it is, its class is what is looked at
        return type(error).__name__


ODDITIES: Final = (
    "changed result",
    "changed arguments",
    "changed run",
    "half-way",
    "no result",
    "rude error",
    "impatient",
    "model",
)


def oddity_of(order: str) -> str:
    """Return the odd thing that an order does; "" for none."""
    drawn, odd = divmod(zlib.crc32(order.encode()), ONE_IN)
    return "" if odd else ODDITIES[drawn % len(ODDITIES)]


def served(order: str) -> str:
    """Return what the workflow of an odd order has to get."""
    return {
        "changed result": "apple,gift apple,gift gift gift gift apple,gift",
        "changed arguments": "ann,bob,cleo",
        "changed run": "begun,run,after it was set,begun,run,returned,begun",
        "half-way": f"released {order}",
        "no result": "NotEncodable NotEncodable",
        "rude error": "Rude ExceptionGroup StepFailed",
        "impatient": "polled awake",
        "model": f"{order} {odd_values.COUPON} [['apple', 'gift'], ['{order}']]",
    }[oddity_of(order)]


def recorded(order: str) -> dict[str, object]:
    """Return the results of steps that the history of an odd order has to have, by the name of the step."""
    of: dict[str, dict[str, object]] = {
        "changed result": {
            "load": {"lines": ["apple"], "of": {"order": [order]}},
            "pages": [["apple"], {"of": [order]}],
            "basket": {"lines": [{"name": "apple", "notes": [order]}], "labels": {"of": [order]}},
        },
        "changed arguments": {"mail": "ann,bob,cleo"},
        "half-way": {"release": f"released {order}"},
        "model": {"parcel": odd_values.parcel_json(order)},
    }
    return of.get(oddity_of(order), {})
