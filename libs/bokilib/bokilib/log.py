"""The former address of `Log`, kept for programs that import it from here: `from bokilib import Log` is the same."""

from bokilib.append.log import Log

__all__ = ["Log"]
