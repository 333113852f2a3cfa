"""Options of the format `boki` as text, parsed into values. Pure.

Spark passes on every option as text, with its name in lower case, and reports none that is never read. Unknown options are therefore
refused here, with the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from boki_common.errors import BokiError
from boki_common.ids import book_id
from boki_spark.errors import BadOption

T = TypeVar("T")

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark adds itself."""

CLUSTER: Final = ("url", "tokenFile", "timeout")
SINK: Final = (*CLUSTER, "book", "bookNumber", "writeId")


@dataclass(frozen=True)
class SinkOptions:
    """The destination of a frame.

    Attributes:
        book: a name or an id.
        url: engines; if empty, $BOKI_URL where the task runs.
        token_file: path of the cluster token where the task runs; empty for none.
        timeout_s: seconds until an append without an answer fails its task; None for the SDK's default.
        write_id: the name of a write in foreachBatch; empty for none.
    """

    book: str | int
    url: str = ""
    token_file: str = ""
    timeout_s: float | None = None
    write_id: str = ""


class GivenOptions:
    """The options of one read or write, by their known names."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        """Check the names of options.

        Raises:
            BadOption: a name is unknown.
        """
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = names.get(key.lower())
            if name is not None:
                self._values[name] = str(value)
            elif key.lower() not in OF_SPARK:
                raise BadOption(
                    f"there is no option {key!r}{_nearest(key, known)}; there are {', '.join(sorted(known))}"
                )

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def value(self, name: str, of: Callable[[str], T], default: T, expected: str) -> T:
        """Parse an option, or return the default if it was not given.

        Args:
            of: parses the text; raises ValueError or BokiError.
            expected: describes allowed values for the error.

        Raises:
            BadOption: the text is not allowed.
        """
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return of(text)
        except (ValueError, BokiError) as error:
            raise BadOption(f"expected {name} to be {expected}, found {text!r}") from error

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """Return an option that must be one of the choices. The first choice is the default. Raises BadOption."""
        text = self._values.get(name, choices[0])
        if text not in choices:
            raise BadOption(f"expected {name} to be {' or '.join(choices)}, found {text!r}{_nearest(text, choices)}")
        return text

    def together(self, *names: str) -> None:
        """Refuse more than one of some options. Raises BadOption."""
        found = [name for name in names if name in self._values]
        if len(found) > 1:
            raise BadOption(f"expected one of {' and '.join(found)}, found both")

    def book(self) -> str | int | None:
        """Return the name or id of the book, or None if none was given. Raises BadOption."""
        self.together("book", "bookNumber")
        name = self.text("book")
        if not name:
            return self.value("bookNumber", lambda text: book_id(int(text)), None, "a number from 0 to 2**64-1")
        return self.value("book", _book_name, None, "a name of 1 to 1,024 bytes")


def _book_name(name: str) -> str:
    book_id(name)  # raises InvalidArgument
    return name


def _nearest(text: str, choices: tuple[str, ...]) -> str:
    lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(text.lower(), lower, n=1, cutoff=0.5)
    return f"; did you mean {lower[close[0]]}?" if close else ""


def signed_id(number: int) -> int:
    """Return a u64 id as the signed integer that Spark's columns hold: its two's complement."""
    return number - 2**64 if number >= 2**63 else number


def seconds(text: str) -> float:
    """Parse a positive number of seconds. Raises ValueError."""
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of `df.write` and `df.writeStream`. Raises BadOption."""
    given = GivenOptions(options, SINK)
    book = given.book()
    if book is None:
        raise BadOption('expected the option book, or bookNumber: df.write.format("boki").option("book", "results")…')
    return SinkOptions(
        book=book,
        url=given.text("url"),
        token_file=given.text("tokenFile"),
        timeout_s=given.value("timeout", seconds, None, "seconds, more than 0"),
        write_id=given.text("writeId"),
    )
