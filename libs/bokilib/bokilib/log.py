"""The former address of `Log`, kept for programs that import it from here. New code uses `from bokilib import Log`."""

from bokilib.append.log import Log

__all__ = ["Log"]
