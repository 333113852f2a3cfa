"""The files of the gateway's own pages, read once with the code that they belong to.

Everything a page needs is here: it loads nothing from elsewhere, and `POLICY` makes browsers hold it to that.
"""

from __future__ import annotations

import pkgutil
from typing import Final

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def package_file(package: str, name: str) -> bytes:
    """A file of the folder `web` of a package."""
    data = pkgutil.get_data(package, f"web/{name}")
    assert data is not None, f"the package has no file web/{name}"
    return data


NAMES: Final = (
    "status.html", "status.js", "reference.html", "reference.js", "theme.js", "shell.js", "page.css", "shell.css", "icon.svg",
)  # fmt: skip
FILES: Final = {name: package_file("boki_gateway", name) for name in NAMES}


def content_type(name: str) -> str:
    """The media type of a file."""
    return _TYPES[name.rpartition(".")[2]]
