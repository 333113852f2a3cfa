"""The interface between an application of the evaluation and what runs it: the service, the load and the trial.

An `Application` is one value: its workflows over a row store, its initial rows, random requests, and checks of its promises.
`examples.hotel` and `examples.movie` each define one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import bokiflow
from bokilib.records.codec import Json, JsonObject
from examples.apps.row_store import RowStore


class Request(NamedTuple):
    """Request of a client: an operation with its arguments.

    Attributes:
        id: id of the workflow, so that a request that is sent again happens once.
        operation: name of the workflow.
        args: arguments of the workflow.
    """

    id: str
    operation: str
    args: tuple[Json, ...]


class Answer(NamedTuple):
    """Definite result of a request.

    Attributes:
        request: the request.
        value: result of the workflow, or None if it failed.
        refused: name of the workflow's error, or "" if it succeeded.
        seconds: time from the first attempt to the result.
        attempts: how many times the request was sent.
    """

    request: Request
    value: Json
    refused: str
    seconds: float
    attempts: int


Mix = Mapping[str, float]
"""Operation → its share of the requests, in percent."""


class WorkflowSet(Protocol):
    """Workflows of an application in one process, over one row store."""

    @property
    def app(self) -> bokiflow.App:
        """The app that registers the workflows."""

    @property
    def operations(self) -> Mapping[str, bokiflow.Workflow[..., Json]]:
        """Workflows that clients may request, by operation."""


class RandomSource(Protocol):
    """The methods of `random.Random` that requests need."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class Application(NamedTuple):
    """An application of the evaluation.

    Attributes:
        name: name in commands, and of the application's book.
        run: returns the workflows over a row store.
        rows: returns the initial rows by name.
        request: returns a random request, given a random source, an operation and the request's id.
        mix: shares of operations in the evaluation.
        trial_mix: shares of operations in a trial, which writes more.
        check: returns faults, given all answers and the rows at the end.
        always: returns faults that a snapshot has even while requests are in progress.
        holds: sentences that tell people what is checked.
        tables: kinds of rows, the part of a row's name before ":".
    """

    name: str
    run: Callable[[RowStore], WorkflowSet]
    rows: Callable[[], dict[str, JsonObject]]
    request: Callable[[RandomSource, str, str], Request]
    mix: Mix
    trial_mix: Mix
    check: Callable[[Iterable[Answer], Mapping[str, JsonObject]], list[str]]
    always: Callable[[Mapping[str, JsonObject]], list[str]]
    holds: tuple[str, ...]
    tables: tuple[str, ...]


HUNDRED: Final = 100.0


def operation_of(mix: Mix, chance: RandomSource) -> str:
    """Return a random operation, by the shares of the mix."""
    at = chance.random() * sum(mix.values())
    for operation, percent in mix.items():
        at -= percent
        if at < 0:
            return operation
    return next(reversed(list(mix)))
