"""Being woken, by another thread or by a write to a file, and by nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boki_common.metadata import file_changes
from boki_common.metadata.file_changes import FileChanges

LONG_S = 20.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


@pytest.fixture
def changes(file: Path) -> Iterator[FileChanges]:
    made = FileChanges()
    made.watch(str(file))
    yield made
    made.close()


def write_in_place(file: Path) -> None:
    """Neither length nor times change."""
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"9")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


needs_inotify = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs inotify")


@needs_inotify
def test_a_listener_is_notified_of_writes_until_it_is_removed(changes: FileChanges, file: Path) -> None:
    assert changes.notified
    assert not changes.wait(0.0)
    write_in_place(file)
    assert changes.wait(LONG_S)
    assert changes.wait(LONG_S)
    changes.forget()
    assert not changes.wait(0.0)
    write_in_place(file)
    assert changes.wait(LONG_S)


@needs_inotify
def test_reading_a_file_is_no_change(changes: FileChanges, file: Path) -> None:
    assert file.read_bytes()
    assert not changes.wait(0.0)


@needs_inotify
@pytest.mark.processes
def test_a_listener_is_notified_of_a_write_of_another_process(changes: FileChanges, file: Path) -> None:
    subprocess.run([sys.executable, "-c", f"open({str(file)!r}, 'r+b').write(b'8')"], check=True)
    assert changes.wait(LONG_S)


def test_a_wake_is_for_one_wait_whenever_it_comes(changes: FileChanges) -> None:
    for _ in range(100_000):
        changes.wake()
    begin = time.monotonic()
    assert not changes.wait(LONG_S)
    waker = threading.Timer(0.05, changes.wake)
    waker.start()
    assert not changes.wait(LONG_S)
    waker.join()
    assert time.monotonic() - begin < LONG_S
    assert not changes.wait(0.0)


@needs_inotify
def test_who_does_not_wait_for_changes_is_not_woken_by_them(changes: FileChanges, file: Path) -> None:
    write_in_place(file)
    begin = time.monotonic()
    assert not changes.wait(0.05, for_changes=False)
    assert time.monotonic() - begin >= 0.05


def test_without_inotify_the_file_may_always_have_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(path: bytes) -> int:
        raise OSError("too many instances")

    monkeypatch.setattr(file_changes, "_watched", none)
    changes = FileChanges()
    changes.watch(str(file))
    assert not changes.notified
    assert changes.wait(0.0)
    changes.forget()
    assert changes.wait(0.0)
    changes.close()


@needs_inotify
def test_a_file_that_is_not_there_is_polled(tmp_path: Path) -> None:
    changes = FileChanges()
    changes.watch(str(tmp_path / "none"))
    assert not changes.notified
    changes.close()
