"""What a URL of engines says beside where they are: options behind a question mark, once, at its end. Pure.

boki://host:7040?token_file=/etc/boki/token
boki://one:7040,two:7040?token_file=/etc/boki/token
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote

from boki_common.errors import InvalidArgument

TOKEN_FILE: Final = "token_file"


class EngineUrl(NamedTuple):
    """`engines`: the URL without options. `token_file`: of the cluster's token; empty: none is named."""

    engines: str
    token_file: str = ""


def split_options(url: str) -> EngineUrl:
    """Takes the options off a URL. Raises InvalidArgument: one that is not known, twice, or without a value."""
    engines, separator, text = url.partition("?")
    if not separator:
        return EngineUrl(url)
    options = parse_qsl(text, keep_blank_values=True)
    if [name for name, _ in options] != [TOKEN_FILE] or not options[0][1]:
        found = ", ".join(name for name, _ in options) or "nothing"
        raise InvalidArgument(
            f"expected ?{TOKEN_FILE}=/path at the end of the URL and no other option, found {found} behind the question mark",
            found=found,
        )
    return EngineUrl(engines, options[0][1])


def with_token_file(url: str, token_file: str) -> str:
    """The URL with that option; unchanged without a file."""
    return f"{url}?{TOKEN_FILE}={quote(token_file, safe='/')}" if token_file else url
