"""Errors of Spark that name a file of a cold frame, raised with a code: what is proved, and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xxhash import xxh3_128_hexdigest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_spark.cold_terms.cold_reads import ColdFile
from boki_spark.cold_terms.files import MemoryFiles
from boki_spark.cold_terms.manifest import SliceFile
from boki_spark.errors import ClusterAway, ColdDamaged, ColdMissing
from boki_spark.source.cold_frame import Known, KnownFiles, _ErrorTranslator, fault_of

PATH = "file:///a folder/term-7/v3-0123456789abcdef/slice-000001.parquet"
ENCODED = "file:///a%20folder/term-7/v3-0123456789abcdef/slice-000001.parquet"
NOT_READ = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {ENCODED}. SQLSTATE: KD001"
BODY = b"rows"


def cold_file(path: str = PATH, body: bytes = BODY) -> ColdFile:
    part = SliceFile("slice", 1, xxh3_128_hexdigest(body), 1, "", "index", 1, "", 1, "", 1, 0, 1)
    return ColdFile(path, 7, 1, 1, np.empty((0, 2), np.uint64), part)


def test_a_file_is_known_by_its_name_however_its_path_is_written() -> None:
    known = KnownFiles()
    known.add([cold_file()])
    assert known.named_in(NOT_READ) == Known(PATH, xxh3_128_hexdigest(BODY))
    assert known.named_in(NOT_READ.replace("v3-", "v4-")) is None and known.named_in("no file") is None


def test_the_files_that_were_named_last_are_known() -> None:
    known = KnownFiles(limit=2)
    paths = [PATH.replace("term-7", f"term-{number}") for number in range(3)]
    known.add([cold_file(path) for path in paths])
    assert [known.named_in(path) is not None for path in paths] == [False, True, True]


class Away(MemoryFiles):
    async def read(self, path: str) -> bytes:
        raise ClusterAway("no answer")


def files_with(*bodies: bytes) -> MemoryFiles:
    files = MemoryFiles()
    for body in bodies:
        files.files[PATH] = body
    return files


@pytest.mark.parametrize(
    ("files", "message", "kind", "code"),
    [
        (files_with(b"rowz"), NOT_READ, ColdDamaged, "BOKI_COLD_DAMAGED"),
        (files_with(b""), NOT_READ, ColdDamaged, "BOKI_COLD_DAMAGED"),
        (files_with(b"rowz"), f"something else of {ENCODED}", ColdDamaged, "BOKI_COLD_DAMAGED"),
        (files_with(), NOT_READ, ColdMissing, "BOKI_COLD_MISSING"),
        (files_with(BODY), NOT_READ, ClusterAway, "BOKI_UNREACHABLE"),
        (files_with(BODY), f"something else of {ENCODED}", None, ""),
        (Away(), NOT_READ, ClusterAway, "BOKI_UNREACHABLE"),
    ],
)
async def test_what_is_proved_of_a_file_is_raised(
    files: MemoryFiles, message: str, kind: type[Exception] | None, code: str
) -> None:
    fault = await fault_of(files, Known(PATH, xxh3_128_hexdigest(BODY)), message)
    assert (fault is None) if kind is None else (type(fault) is kind and str(fault).startswith(f"[{code}] "))


class SparkError(Exception):
    """As py4j raises them."""

    __module__ = "py4j.protocol"


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call


def test_an_error_of_spark_that_names_a_damaged_file_is_raised_with_its_code(tmp_path: Path) -> None:
    file = tmp_path / "term-7" / "v3-0123456789abcdef" / "slice-000001.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rowz")
    error = SparkError(f"FAILED_READ_FILE: file://{file}")
    translator = _ErrorTranslator(raising(error))
    translator.files.add([cold_file(f"file://{file}")])
    with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\]") as caught:
        translator("answer")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [SparkError("of another file"), ValueError(NOT_READ)])
def test_every_other_error_and_every_answer_goes_through(error: Exception) -> None:
    translator = _ErrorTranslator(raising(error))
    translator.files.add([cold_file()])
    with pytest.raises(type(error)) as caught:
        translator("answer")
    assert caught.value is error
    assert _ErrorTranslator(lambda *answer: answer)(1, 2) == (1, 2)
