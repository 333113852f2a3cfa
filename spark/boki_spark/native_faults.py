"""What Spark finds in a file of a cold frame, raised with a code.

Spark reads these files by itself, and raises its own errors of what is wrong with one: a page whose checksum differs, a file that is not
there. So every error that leaves Spark in this process is looked at, as pyspark itself does. If it names a file that a cold frame was
made of, that file is compared with what its manifest says of it, and what is proved is raised: `BOKI_COLD_MISSING`, `BOKI_COLD_DAMAGED`. A
file that is whole as seen from here is `BOKI_UNREACHABLE` if Spark could not read it. All else stays Spark's.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from xxhash import xxh3_128_hexdigest

from boki_common.runtime.loop_thread import LoopThread
from boki_spark.cold_reads import ColdFile
from boki_spark.faults import ClusterAway, ColdDamaged, ColdMissing, ReadFault
from boki_spark.files import Files, OpenFiles

FILES_KNOWN: Final = 65_536
"""Of cold frames of one process; those that were made last."""
FROM_SPARK: Final = ("py4j.", "pyspark.")
"""Modules of its errors."""
_NAME: Final = re.compile(r"term-\d+/v\d+-[0-9a-f]+/slice-\d+\.parquet")
"""How an attempt names a file: no other attempt has the same, wherever it is and however a path is written."""
_NOT_READ: Final = "FAILED_READ_FILE"


class Known(NamedTuple):
    """A file, and its hash."""

    path: str
    hash: str


class KnownFiles:
    """Files of cold frames, by the end of their names."""

    def __init__(self, limit: int = FILES_KNOWN) -> None:
        self._limit = limit
        self._files: OrderedDict[str, Known] = OrderedDict()

    def add(self, files: Iterable[ColdFile]) -> None:
        """More of them; the oldest are forgotten."""
        for one in files:
            found = _NAME.search(one.path)
            if found is not None:
                self._files[found[0]] = Known(one.path, one.slice.hash)
                self._files.move_to_end(found[0])
        while len(self._files) > self._limit:
            self._files.popitem(last=False)

    def named_in(self, text: str) -> Known | None:
        """The first file that a text names."""
        names = (name for name in _NAME.findall(text) if name in self._files)
        return self._files.get(next(names, ""))


async def fault_of(files: Files, one: Known, message: str) -> ReadFault | None:
    """What is wrong with a file that an error of Spark names; None: nothing, and by Spark it could be read."""
    try:
        data = await files.read(one.path)
    except ColdMissing:
        return ColdMissing(
            f"there is no file {one.path} any more: make the frame again; if its term has not died, restore the file or offload again"
        )
    except ClusterAway as error:
        return error
    if xxh3_128_hexdigest(data) != one.hash:
        return ColdDamaged(f"{one.path} is not what was written: offload the term again")
    if _NOT_READ in message:
        return ClusterAway(
            f"Spark could not read {one.path}, which is whole as seen from here: make the frame again; workers must reach the file by the "
            "same URL; the error of Spark is the cause of this one"
        )
    return None


class _ErrorTranslator:
    """In the place of py4j's function that gives what Java returned, or raises what it raised."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self._inner = inner
        self.files = KnownFiles()

    def __call__(self, *args: Any, **how: Any) -> Any:
        try:
            return self._inner(*args, **how)
        except Exception as error:
            fault = self._coded(error)
            if fault is None:
                raise
            raise fault from error

    def _coded(self, error: Exception) -> ReadFault | None:
        if not type(error).__module__.startswith(FROM_SPARK):
            return None
        message = str(error)
        named = self.files.named_in(message)
        if named is None:
            return None
        thread = LoopThread("boki_spark.native_faults")
        try:
            return thread.run(fault_of(OpenFiles(), named, message))
        finally:
            thread.stop()


def translate_errors_of(files: Iterable[ColdFile]) -> None:
    """From now on errors of Spark that name one of these files have a code. Idempotent."""
    from py4j import java_gateway

    translator = java_gateway.get_return_value
    if not isinstance(translator, _ErrorTranslator):
        translator = java_gateway.get_return_value = _ErrorTranslator(translator)
    translator.files.add(files)
