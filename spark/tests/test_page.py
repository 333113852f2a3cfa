"""The blocks of docs/spark.md run in order and print the output that the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from itests.test_docs import DEFAULT_URL, PRINTS, ROOT, blocks, mark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "spark.md"


@pytest.mark.spark
@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_the_page_of_spark(spark: SparkSession, dev: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"spark": spark, "scratch": tmp_path}
    for example in blocks(PAGE):
        source = "\n" * example.line + str(example.parsed).replace(DEFAULT_URL, dev)
        code = compile(source, str(PAGE), "exec")
        if mark_of(example)[0]:
            continue
        capsys.readouterr()
        exec(code, names)
        printed = PRINTS.match(example.document.text, example.region.end)
        assert capsys.readouterr().out == (printed[1] if printed else ""), f"docs/spark.md:{example.line}"
