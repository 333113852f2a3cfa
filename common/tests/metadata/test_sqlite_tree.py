"""The transactions of a SQLite metadata file: what stays after a refusal, a bug and a lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from boki_common.errors import BadVersion, MetadataUnavailable, NodeExists, SettingsError
from boki_common.metadata.sqlite_tree import SPARE_PAGES, SessionRow, SqliteTree, Stamp, open_database


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[SqliteTree]:
    path = str(tmp_path / "metadata.db")
    made = SqliteTree(open_database(path), path)
    yield made
    made.close()


@pytest.fixture
def other(tree: SqliteTree, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(str(tmp_path / "metadata.db"))
    yield connection
    connection.close()


def test_what_was_done_before_a_refusal_stays(tree: SqliteTree) -> None:
    def job() -> None:
        tree.begin_session(SessionRow("s", "boot", 1, 1, "", 5))
        tree.set("/", b"", 7)

    with pytest.raises(BadVersion):
        tree.write(job)
    assert tree.read(tree.sessions) == [SessionRow("s", "boot", 1, 1, "", 5)]


def test_a_bug_in_the_middle_of_a_write_leaves_nothing(tree: SqliteTree) -> None:
    def job() -> None:
        tree.create("/a", b"", None)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tree.write(job)
    assert not tree.read(lambda: tree.exists("/a"))


def test_a_read_is_one_snapshot_and_a_write_waits_for_it(tree: SqliteTree, other: sqlite3.Connection) -> None:
    second = SqliteTree(other, "the same file")

    def job() -> None:
        before = tree.get("/")
        with pytest.raises(MetadataUnavailable, match="locked"):
            second.write(lambda: second.create("/a", b"", None))
        assert tree.get("/") == before

    tree.read(job)
    second.write(lambda: second.create("/a", b"", None))
    assert tree.read(lambda: tree.exists("/a"))
    with pytest.raises(NodeExists):
        tree.write(lambda: tree.create("/a", b"", None))


def test_stamps_move_with_the_node_and_with_its_children(tree: SqliteTree) -> None:
    def stamp(path: str) -> Stamp | None:
        return tree.read(lambda: tree.stamp(path))

    assert stamp("/a") is None
    tree.write(lambda: tree.create("/a", b"", None))
    made = stamp("/a")
    tree.write(lambda: tree.create("/a/b", b"", "s"))
    with_child = stamp("/a")
    assert made and with_child and with_child.changed == made.changed
    assert with_child.children_changed > made.children_changed
    tree.write(lambda: tree.set("/a", b"", 0))
    changed = stamp("/a")
    assert changed and changed.changed > made.changed and changed.children_changed == with_child.children_changed
    tree.write(lambda: tree.end_session("s"))
    emptied = stamp("/a")
    assert emptied and emptied.children_changed > changed.children_changed
    tree.write(lambda: tree.delete("/a", 1))
    assert stamp("/a") is None
    tree.write(lambda: tree.create("/a", b"", None))
    assert stamp("/a") != made


def test_the_counter_moves_with_each_change_of_a_node_alone(tree: SqliteTree, other: sqlite3.Connection) -> None:
    seen = [tree.read(tree.changes)]
    tree.write(lambda: tree.create("/a", b"", None))
    seen.append(tree.read(tree.changes))
    SqliteTree(other, "other").write(lambda: SqliteTree(other, "other").set("/a", b"2", 0))
    seen.append(tree.read(tree.changes))
    tree.write(lambda: tree.delete("/a", 1))
    seen.append(tree.read(tree.changes))
    assert seen == sorted(set(seen))
    tree.write(lambda: tree.begin_session(SessionRow("s", "boot", 1, 1, "", 5)))
    tree.write(lambda: tree.renew_session("s", 9))
    assert tree.read(tree.changes) == seen[-1]


def test_a_session_that_is_gone_cannot_be_renewed(tree: SqliteTree) -> None:
    assert not tree.write(lambda: tree.renew_session("s", 9))
    tree.write(lambda: tree.begin_session(SessionRow("s", "boot", 1, 1, "", 5)))
    assert tree.write(lambda: tree.renew_session("s", 9))
    assert tree.read(tree.sessions)[0].expires_ms == 9
    tree.write(lambda: tree.end_session("s"))
    assert not tree.read(lambda: tree.has_session("s"))


def test_locked_while_opening(tree: SqliteTree, tmp_path: Path) -> None:
    def job() -> None:
        with pytest.raises(MetadataUnavailable, match="locked"):
            open_database(str(tmp_path / "metadata.db"))

    tree.write(job)


def test_a_file_that_is_not_there_is_made_only_if_that_is_wanted(tmp_path: Path) -> None:
    path = str(tmp_path / "with space?mode=ro#%41.db")
    with pytest.raises(SettingsError, match="expected the metadata file of a cluster, found none"):
        open_database(path, create=False)
    assert not list(tmp_path.iterdir()), "a misspelt path is not a new cluster"
    open_database(path).close()
    open_database(path, create=False).close()
    assert [file.name for file in tmp_path.iterdir() if "journal" not in file.name] == ["with space?mode=ro#%41.db"]


def test_a_file_that_cannot_grow_takes_writes_until_its_spare_pages_are_used(tmp_path: Path) -> None:
    """As on a full disk; the journal is as long as it takes to change them all."""
    path = tmp_path / "metadata.db"
    open_database(str(path)).close()
    connection = open_database(str(path))
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    tree = SqliteTree(connection, "metadata.db")
    for number in range(SPARE_PAGES // 2):
        tree.write(lambda: tree.create(f"/{number}", bytes(3_000), None))  # noqa: B023 - done when it returns
        tree.write(lambda: tree.begin_session(SessionRow(f"s{number}", "boot", 1, 1, "", 5)))  # noqa: B023 - the same
    with pytest.raises(MetadataUnavailable, match="full"):
        for number in range(SPARE_PAGES):
            tree.write(lambda: tree.create(f"/more-{number}", bytes(3_000), None))  # noqa: B023 - the same
    tree.close()
    assert (tmp_path / "metadata.db-journal").stat().st_size > SPARE_PAGES * 4_096
    assert path.stat().st_size == pages * 4_096


def test_spare_pages_that_were_used_are_made_again_at_the_next_start(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")
    connection = open_database(path)
    tree = SqliteTree(connection, path)
    for number in range(SPARE_PAGES):
        tree.write(lambda: tree.create(f"/{number}", bytes(3_000), None))  # noqa: B023 - done when it returns
    assert connection.execute("PRAGMA freelist_count").fetchone()[0] < SPARE_PAGES // 2
    tree.close()
    connection = open_database(path)
    assert connection.execute("PRAGMA freelist_count").fetchone()[0] >= SPARE_PAGES
    connection.close()
