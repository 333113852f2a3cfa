"""Tell the Ctrl-C of a person from a KeyboardInterrupt that a user's function raises. Pure."""

from __future__ import annotations

import dis
from typing import Final

_RAISE: Final = dis.opmap["RAISE_VARARGS"]
_RUNNERS: Final = "/asyncio/runners.py"


def interrupted(error: BaseException) -> bool:
    """Return whether an error of a user's function is a person's Ctrl-C, and not of the function's own making.

    A signal handler raises KeyboardInterrupt in whatever function runs then; code that raises one by itself has a `raise` there.
    """
    if not isinstance(error, KeyboardInterrupt) or error.__traceback__ is None:
        return False
    innermost = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    code = innermost.tb_frame.f_code
    by_handler = code.co_name == "_on_sigint" and code.co_filename.replace("\\", "/").endswith(_RUNNERS)
    return by_handler or code.co_code[innermost.tb_lasti] != _RAISE
