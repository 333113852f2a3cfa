"""Objects that are bound to a connection of this process, and therefore cannot be pickled.

A pickle of one would not work in another process: its client, event loop and session are here.
"""

from __future__ import annotations

from typing import NoReturn

from boki_common.errors import UsageError


class Unpickled:
    """Base class of objects that cannot be pickled or copied. They say so in words, and what to do."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled.

        Raises:
            UsageError: always.
        """
        kind = type(self)
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise UsageError(
            f"expected what can be pickled, found {self!r:.200} ({name}), which is bound to a client of this process: connect and "
            "open it in the process that uses it"
        )
