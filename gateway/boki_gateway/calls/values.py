"""How many values a JSON body holds, counted before it is decoded: a body of 16 MiB may be eight million of them. Pure.

    for _ in check_values(data, limit): ...         # raises BodyTooLarge; the caller yields to the event loop at each step

Decoding is one call that nothing interrupts, and its time depends on the number of values more than on the bytes. Commas outside of
strings separate values, so they are counted: a few passes at the speed of `bytes`. Bytes that are no JSON get some count, and the
decoder refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from boki_common.limits import KIB
from boki_gateway.errors import BodyTooLarge

STEP_BYTES: Final = 64 * KIB
_ESCAPE: Final = b"\\"


def check_values(data: bytes, limit: int) -> Iterator[None]:
    """Count the values of a body, a step at a time. Raises BodyTooLarge: there are over `limit`."""
    found, at = 1, 0
    inside = False
    while at < len(data) and len(data) > limit:
        step = data[at : at + STEP_BYTES]
        escapes = len(step) - len(step.rstrip(_ESCAPE))
        if escapes % 2 and len(step) > 1:  # its escape and what it escapes stay together
            step = step[:-1]
        at += len(step)
        parts = step.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = parts[1 if inside else 0 :: 2]
        found += sum(part.count(b",") for part in outside)
        inside ^= len(parts) % 2 == 0
        if found > limit:
            raise BodyTooLarge(
                f"expected a body of at most {limit} JSON values, found more; send several", expected=limit
            )
        yield
