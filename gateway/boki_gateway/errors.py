"""What the gateway refuses by itself, before a call of the SDK: errors of the same tree as all others.

Each is the caller's mistake and certainly applied nothing. `http_errors` has the HTTP status of every error.
"""

from __future__ import annotations

from boki_common.errors import UsageError


class NoSuchPath(UsageError):
    """No route has this path."""


class NoSuchRecord(UsageError):
    """No record of the book has this seqnum."""


class MethodRefused(UsageError):
    """The path is there and takes other methods."""


class BodyTooLarge(UsageError):
    """The body of the request is over the limit of its path."""


class BodyIncomplete(UsageError):
    """The body did not arrive in time."""

    retryable = True


class NotAdmitted(UsageError):
    """This gateway asks for the cluster token, and the request shows none, or another."""


class UnsupportedBody(UsageError):
    """The body's content type is none that the path reads."""


class UnsupportedEncoding(UsageError):
    """The body's Content-Encoding is none that is read."""
