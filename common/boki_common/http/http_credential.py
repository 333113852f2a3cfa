"""Where an HTTP request shows the cluster token: `Authorization: Bearer TOKEN`, or Basic with the token as password. Pure.

Programs send the first; browsers ask a person and send the second, with any user name; Prometheus can send both.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

CHALLENGES: Final = ('Basic realm="boki", charset="UTF-8"', 'Bearer realm="boki"')
"""`WWW-Authenticate` of a 401, one header each: Chromium reads one challenge of a header, and asks a person for Basic only."""


def shown_in(authorization: str | None) -> str | None:
    """The token that the header shows; None: there is no header, or it shows none."""
    scheme, _, rest = (authorization or "").strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest or None
    if scheme.lower() != "basic":
        return None
    try:
        _, separator, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return password if separator and password else None
