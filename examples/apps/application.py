"""What an application of the evaluation is to the service, the load and the trial: workflows, data, requests, and what has to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import bokiflow
from bokilib.codec import Json, JsonObject
from examples.apps.row_store import RowStore


class Request(NamedTuple):
    """One request of a client.

    Attributes:
        id: however often it is sent, it happens once. operation: the workflow. args: its arguments.
    """

    id: str
    operation: str
    args: tuple[Json, ...]


class Answer(NamedTuple):
    """How a request ended, definitely. `refused`: name of the error; "" if it was done. `seconds`: until then."""

    request: Request
    value: Json
    refused: str
    seconds: float
    attempts: int


Mix = Mapping[str, float]
"""Operation → how often, in a hundred."""


class WorkflowSet(Protocol):
    """Workflows of an application in one process."""

    @property
    def app(self) -> bokiflow.App: ...

    @property
    def operations(self) -> Mapping[str, bokiflow.Workflow[..., Json]]:
        """What clients may ask for."""


class RandomSource(Protocol):
    """Of `random.Random`, what is needed here."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class Application(NamedTuple):
    """See the module.

    Attributes:
        run: makes its workflows over data. rows: what is there in the beginning. request: one of an operation, by chance.
        mix: of the evaluation. trial_mix: of a trial, in which more is written. check: of answers and all rows, what is wrong.
        always: what is wrong with a snapshot. holds: what is checked, for people. tables: of the names of rows, what is before ":".
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
    """One operation, by chance."""
    at = chance.random() * sum(mix.values())
    for operation, percent in mix.items():
        at -= percent
        if at < 0:
            return operation
    return next(reversed(list(mix)))
