"""Translation of Spark's errors that name a file of a cold frame: only a proved fault gets a code."""

from __future__ import annotations

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
from boki_spark.source.cold_frame import HashedFile, RememberedFiles, SparkErrors, TranslatingClient, fault_of

PATH = "file:///a folder/term-7/v3-0123456789abcdef/slice-000001.parquet"
ENCODED = "file:///a%20folder/term-7/v3-0123456789abcdef/slice-000001.parquet"
NOT_READ = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {ENCODED}. SQLSTATE: KD001"
BODY = b"rows"


def cold_file(path: str = PATH, body: bytes = BODY) -> ColdFile:
    part = SliceFile("slice", 1, xxh3_128_hexdigest(body), 1, "", "index", 1, "", 1, "", 1, 0, 1)
    return ColdFile(path, 7, 1, 1, np.empty((0, 2), np.uint64), part)


def test_a_file_is_files_by_its_name_however_its_path_is_written() -> None:
    files = RememberedFiles()
    files.add([cold_file()])
    assert files.named_in(NOT_READ) == HashedFile(PATH, xxh3_128_hexdigest(BODY))
    assert files.named_in(NOT_READ.replace("v3-", "v4-")) is None and files.named_in("no file") is None


def test_the_files_that_were_named_last_are_files() -> None:
    files = RememberedFiles(limit=2)
    paths = [PATH.replace("term-7", f"term-{number}") for number in range(3)]
    files.add([cold_file(path) for path in paths])
    assert [files.named_in(path) is not None for path in paths] == [False, True, True]


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
    fault = await fault_of(files, HashedFile(PATH, xxh3_128_hexdigest(BODY)), message)
    assert (fault is None) if kind is None else (type(fault) is kind and str(fault).startswith(f"[{code}] "))


class SparkError(Exception):
    """An error as py4j raises them."""

    __module__ = "py4j.protocol"


def errors_of(*files: ColdFile) -> SparkErrors:
    errors = SparkErrors()
    errors.files.add(files)
    return errors


def test_an_error_of_spark_that_names_a_damaged_file_is_raised_with_its_code(tmp_path: Path) -> None:
    file = tmp_path / "term-7" / "v3-0123456789abcdef" / "slice-000001.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rowz")
    error = SparkError(f"FAILED_READ_FILE: file://{file}")
    with (
        pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\]") as caught,
        errors_of(cold_file(f"file://{file}")).translated(),
    ):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [SparkError("of another file"), ValueError(NOT_READ)])
def test_every_other_error_is_raised_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, errors_of(cold_file()).translated():
        raise error
    assert caught.value is error


class Gateway:
    """A gateway client that answers every command alike."""

    port = 7

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.commands: list[str] = []

    def send_command(self, command: str, *_: Any, **__: Any) -> str:
        self.commands.append(command)
        return self._answer


def test_commands_answers_and_attributes_of_the_gateway_pass_through() -> None:
    gateway = Gateway("yv")
    client = TranslatingClient(gateway, errors_of())
    assert client.send_command("c\no1\ncount\ne\n") == "yv" and client.port == 7
    assert gateway.commands == ["c\no1\ncount\ne\n"]


@pytest.mark.parametrize("command", ["c\no1\ncount\ne\n", "m\nd\no1\ne\n", "x"])
def test_an_error_that_a_gateway_answers_is_raised_with_its_code(tmp_path: Path, command: str) -> None:
    pytest.importorskip("py4j")
    file = tmp_path / "term-7" / "v3-0123456789abcdef" / "slice-000001.parquet"
    client = TranslatingClient(Gateway(f"xsFAILED_READ_FILE: file://{file}"), errors_of(cold_file(f"file://{file}")))
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        client.send_command(command)
