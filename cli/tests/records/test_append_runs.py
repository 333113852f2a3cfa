"""A run that is not over is continued, one that is over is begun anew, behind its numbers; what is unreadable is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from boki_cli.records.append_runs import AppendRun, RunUnderWay, state_folder
from boki_common.errors import CorruptData


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "boki" / "appends"


def run_of(file: str = "/data/in", *, skip: int = 0, cluster: str = "c", book: str = "b") -> AppendRun:
    return AppendRun.of_file(cluster, book, file, skip=skip)


def begun(last: int, *, skip: int = 0) -> tuple[str, int, int]:
    run = run_of(skip=skip)
    done = run.begin(last)
    run.close()
    return run.writer, run.base, done


def test_a_run_that_was_cut_short_goes_on_under_its_writer_a_finished_one_does_not() -> None:
    writer, base, done = begun(0)
    assert (base, done) == (0, 0)
    assert begun(700) == (writer, 0, 700)
    run = run_of()
    assert run.begin(1_000) == 1_000
    run.over()
    run.close()
    assert begun(1_000) == (writer, 1_000, 0)
    assert begun(1_200) == (writer, 1_000, 200)


def test_another_beginning_of_the_file_is_another_run() -> None:
    writer, _, _ = begun(5)
    assert begun(9, skip=3) == (writer, 9, 0)
    assert begun(11, skip=3) == (writer, 9, 2)


def test_a_log_that_has_less_is_not_the_one_of_that_run() -> None:
    writer, base, _ = begun(1_000)
    assert base == 1_000
    assert begun(10) == (writer, 10, 0)


def test_files_clusters_and_books_have_writers_of_their_own() -> None:
    runs = [run_of(), run_of("/data/other"), run_of(cluster="d"), run_of(book="e")]
    for run in runs:
        run.begin(0)
    assert len({run.writer for run in runs}) == 4
    for run in runs:
        run.close()
        run.close()


def test_one_command_at_a_time() -> None:
    run = run_of()
    with pytest.raises(RunUnderWay, match="another `boki append` of /data/in to the book b is under way"):
        run_of()
    run.close()
    run_of().close()


def test_what_cannot_be_read_is_refused(state: Path) -> None:
    begun(0)
    (path,) = state.iterdir()
    for content, message in ((b"{", "expected the state of an earlier `boki append`"), (b'{"version":2}', "expected")):
        path.write_bytes(content)
        with pytest.raises(CorruptData, match=message):
            run_of()
    path.write_bytes(b"")  # made, and the machine went down before anything was written
    run_of().close()


def test_where_state_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_folder() == tmp_path / "boki" / "appends"
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/is/ignored"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert state_folder() == tmp_path / ".local/state/boki/appends"
