"""Tests of the pipeline: its sums, its input, and a small run that is killed in the offload and in a batch.

    .venv/bin/python -m pytest examples/test_pipeline.py -m "not spark"         # without the run

The run needs the extra `spark` and Java, and is skipped without them.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from boki_spark.session import JavaMissing, java_home
from examples import pipeline

COUNT = 2_000


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """Return a CSV file of random flights that has the columns of the pipeline."""
    rng = random.Random(7)
    path = tmp_path / "flights.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(pipeline.COLUMNS)
        for at in range(COUNT):
            delay = rng.choice(["NA", "", rng.randint(-20, 200)])
            writer.writerow(
                [
                    1 + at // 1_000,
                    1 + at % 28,
                    rng.randint(5, 23),
                    rng.choice(["UA", "B6"]),
                    rng.choice(pipeline.ORIGINS),
                    delay,
                ]
            )
    return path


def test_sums_of_batches_add_up_to_those_of_the_whole(flights: Path) -> None:
    rows = pipeline.load(flights, 10**9)
    whole = pipeline.oracle(rows)
    parts = []
    for some in (rows[:700], rows[700:]):
        sums = pipeline.oracle(some)
        parts += [
            {"of": "delays", "hour": h, "carrier": c, "count": n, "total": t} for (h, c), (n, t) in sums.delays.items()
        ]
        parts += [{"of": "days", "month": m, "day": d, "count": n} for (m, d), n in sums.days.items()]
    assert pipeline.add_up(parts) == whole and sum(whole.days.values()) == COUNT
    late = pipeline.late_oracle(rows)
    assert sum(count for count, _ in late.values()) == sum(count for count, _ in whole.delays.values())
    assert all(0 < behind < count for count, behind in late.values())


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("month,day\n1,2\n")
    with pytest.raises(SystemExit, match="found no hour, carrier"):
        pipeline.load(path, 9)


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_a_pipeline_killed_twice_on_its_way_ends_equal_to_the_oracle(
    flights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)
    try:
        java_home(tmp_path)
    except JavaMissing as error:
        pytest.skip(str(error))
    folder = tmp_path / "run"
    assert pipeline.main([str(flights), "--folder", str(folder), "--batch-rows", "1100"]) == 0
    printed = capfd.readouterr().out
    assert (
        printed.count("ended with -9; restarting") == 2
        and f": {COUNT} records offloaded" in printed
        and printed.rstrip().endswith("equal to oracle")
    )
    assert all((folder / "pictures" / name).stat().st_size > 5_000 for name in ("delays.png", "late.png", "rate.png"))
