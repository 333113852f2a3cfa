"""What is special about SQLite: files that are not ours, locks, sessions that are proven or guessed dead."""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from boki_common import logs
from boki_common.errors import CorruptData, InvalidArgument, MetadataUnavailable, VersionMismatch, WrongDirectory
from boki_common.metadata import file_changes
from boki_common.metadata import sqlite as sqlite_module
from boki_common.metadata.machine_facts import NETWORK_FILE_SYSTEMS, file_system_of, process_identity
from boki_common.metadata.sqlite import SqliteStore
from boki_common.metadata.sqlite_tree import (
    APPLICATION_ID,
    LOCK_WAIT_MS,
    SCHEMA_VERSION,
    SqliteTree,
    open_database,
)
from boki_common.metadata.store import Versioned

TIMEOUT_S = 0.6
Opener = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.fixture
async def opened(path: Path) -> AsyncIterator[Opener]:
    """Starts stores on the test's file, and closes them."""
    stores: list[SqliteStore] = []

    async def open_store(file: Path = path, *, timeout_s: float = TIMEOUT_S) -> SqliteStore:
        store = SqliteStore(file, session_timeout_s=timeout_s)
        stores.append(store)
        await store.start()
        return store

    yield open_store
    for store in stores:
        await store.close()


@pytest.fixture
async def store(opened: Opener) -> Any:
    return await opened()


def edit(path: Path, *statements: str) -> list[Any]:
    """Runs statements on the file behind the store's back; returns the rows of the last one."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    try:
        rows: list[Any] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
    finally:
        connection.close()


async def test_what_was_written_is_there_after_a_restart(opened: Opener, store: Any, path: Path) -> None:
    await store.create("/a", b"1")
    await store.set("/a", b"2", version=0)
    await store.create("/ephemeral", ephemeral=True)
    await store.create_sequential("/id-")
    await store.close()
    store = await opened()
    assert await store.get("/a") == Versioned(b"2", 1)
    assert await store.children("/") == ["a", "id-0000000000"]
    assert await store.create_sequential("/id-") == "/id-0000000001"
    assert edit(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert edit(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]


async def test_a_text_file_is_refused(opened: Opener, path: Path) -> None:
    path.write_text("this is no database, " * 100)
    with pytest.raises(CorruptData, match=f"{path} is no metadata file"):
        await opened()
    assert path.read_text().startswith("this is no database"), "it was not touched"


async def test_the_database_of_another_program_is_refused(opened: Opener, path: Path) -> None:
    edit(path, "CREATE TABLE users (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(WrongDirectory, match="database of another program"):
        await opened()
    assert path.read_bytes() == before


async def test_tables_of_another_version_are_refused(opened: Opener, path: Path) -> None:
    await (await opened()).close()
    edit(path, "PRAGMA user_version = 9")
    with pytest.raises(VersionMismatch, match=f"has metadata format 9, this program reads {SCHEMA_VERSION}") as caught:
        await opened()
    assert (caught.value.found, caught.value.expected) == (9, SCHEMA_VERSION)


async def test_a_damaged_file_is_refused(opened: Opener, store: Any, path: Path) -> None:
    for number in range(50):
        await store.create(f"/{number:04d}", b"x" * 500)
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8_192] + b"\xff" * 8_192 + whole[16_384:])
    with pytest.raises(CorruptData, match="damaged"):
        await opened()


async def test_a_file_damaged_under_our_feet_is_named(store: Any, path: Path) -> None:
    for number in range(200):
        await store.create(f"/{number:04d}", b"x" * 500)
    pages = path.stat().st_size // 4_096
    with path.open("r+b") as file:
        for page in range(1, pages):
            file.seek(page * 4_096)
            file.write(b"\xff" * 4_096)
    edit(path, "PRAGMA user_version = 1")  # moves the change counter, so that cached pages are read again
    with pytest.raises(CorruptData, match="damaged"):
        for number in range(200):
            await store.get(f"/{number:04d}")


async def test_a_missing_folder_is_named(opened: Opener, tmp_path: Path) -> None:
    with pytest.raises(WrongDirectory, match="its folder must exist"):
        await opened(tmp_path / "none" / "metadata.db")


async def test_a_folder_in_the_place_of_the_file(opened: Opener, tmp_path: Path) -> None:
    with pytest.raises(WrongDirectory, match="cannot open"):
        await opened(tmp_path)


async def test_a_start_that_failed_can_be_repeated(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "later" / "metadata.db")
    with pytest.raises(WrongDirectory):
        await store.start()
    (tmp_path / "later").mkdir()
    await store.start()
    await store.create("/a")
    await store.close()


@pytest.mark.parametrize("call", ["start", "close"])
async def test_a_call_that_is_cancelled_leaves_no_thread_and_no_session(path: Path, call: str) -> None:
    before = set(threading.enumerate())
    store = SqliteStore(path, session_timeout_s=TIMEOUT_S)
    if call == "close":
        await store.start()
    cancelled = asyncio.ensure_future(store.start() if call == "start" else store.close())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    for thread in set(threading.enumerate()) - before:
        await asyncio.to_thread(thread.join)
    assert edit(path, "SELECT count(*) FROM sessions") == [(0,)]


async def test_an_outage_of_the_file_expires_nobody(
    opened: Opener, path: Path, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "START_TIMEOUT_S", 0.0)
    one, other = await opened(), await opened()
    lost: list[str] = []
    one.on_session_lost(lambda: lost.append("one"))
    other.on_session_lost(lambda: lost.append("other"))
    await one.create("/one", ephemeral=True)
    await other.create("/other", ephemeral=True)
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    for call in (one.create("/a"), other.get("/one")):
        with pytest.raises(MetadataUnavailable, match="locked") as caught:
            await call
        assert caught.value.definite
    lock.execute("ROLLBACK")
    lock.close()

    async def writable() -> bool:
        try:
            await one.create_sequential("/probe-")
        except MetadataUnavailable:
            return False
        return True

    await tools.eventually(writable)
    for store in (one, other):
        assert await store.exists("/one")
        assert await store.exists("/other")
        assert not await store.exists("/a")
    assert lost == []


async def test_a_session_of_an_earlier_boot_is_dead(opened: Opener, path: Path) -> None:
    await (await opened()).close()
    far = 2**62
    edit(path, f"INSERT INTO sessions VALUES ('old', 'another boot', {os.getpid()}, 1, '', {far})",
         "INSERT INTO nodes VALUES ('/old', '/', x'', 0, 'old', 0, 0, 0)")  # fmt: skip
    store = await opened()
    assert not await store.exists("/old")


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
async def test_a_session_of_a_process_that_is_gone_is_dead(opened: Opener, path: Path) -> None:
    await (await opened()).close()
    boot, _pid, started, namespace = await asyncio.to_thread(process_identity)
    for pid, process_started in ((os.getpid(), started - 1), (2**22 + 1, started)):
        edit(path, f"INSERT INTO sessions VALUES ('old', '{boot}', {pid}, {process_started}, '{namespace}', {2**62})",
             "INSERT INTO nodes VALUES ('/old', '/', x'', 0, 'old', 0, 0, 0)")  # fmt: skip
        store = await opened()
        assert not await store.exists("/old")
        await store.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
async def test_a_session_of_a_process_of_which_nothing_is_known_is_not_ended(opened: Opener, path: Path) -> None:
    """It exists; when it started is unknown, as under hidepid."""
    await (await opened()).close()
    boot, pid, _started, namespace = await asyncio.to_thread(process_identity)
    edit(path, f"INSERT INTO sessions VALUES ('old', '{boot}', {pid}, 0, '{namespace}', {2**62})",
         "INSERT INTO nodes VALUES ('/old', '/', x'', 0, 'old', 0, 0, 0)")  # fmt: skip
    store = await opened()
    assert await store.exists("/old")


async def test_age_is_judged_only_after_a_whole_timeout(opened: Opener, path: Path, tools: Any) -> None:
    """A process of another pid namespace cannot be looked up: only its renewals show that it lives."""
    await (await opened()).close()
    boot = (await asyncio.to_thread(process_identity))[0]
    edit(path, f"INSERT INTO sessions VALUES ('old', '{boot}', 1, 1, 'another', 0)",
         "INSERT INTO nodes VALUES ('/old', '/', x'', 0, 'old', 0, 0, 0)")  # fmt: skip
    start = time.monotonic()
    store = await opened()
    assert await store.exists("/old")

    async def gone() -> bool:
        return not await store.exists("/old")

    await tools.eventually(gone)
    assert time.monotonic() - start >= TIMEOUT_S


async def test_a_store_that_missed_its_expiry_begins_a_new_session(store: Any, path: Path, tools: Any) -> None:
    lost: list[bool] = []
    store.on_session_lost(lambda: lost.append(True))
    await store.create("/before", ephemeral=True)
    edit(path, "DELETE FROM sessions", "DELETE FROM nodes WHERE session IS NOT NULL")
    await store.create("/after", ephemeral=True)
    assert lost == [True]

    async def only_after() -> bool:
        return bool(await store.children("/") == ["after"])

    await tools.throughout(only_after, 3 * TIMEOUT_S)
    edit(path, "DELETE FROM sessions", "DELETE FROM nodes WHERE session IS NOT NULL")

    async def notified() -> bool:
        return lost == [True, True]

    await tools.eventually(notified)  # without any call: the renewal notices
    assert await store.children("/") == []


async def test_a_refused_write_that_begins_a_session_keeps_it(store: Any, path: Path) -> None:
    lost: list[bool] = []
    store.on_session_lost(lambda: lost.append(True))
    await store.create("/e", ephemeral=True)
    edit(path, "DELETE FROM sessions")  # by hand: the node stays and belongs to nobody
    with pytest.raises(InvalidArgument):
        await store.create("/e/child")
    assert lost == [True]
    await store.create("/own", ephemeral=True)
    assert edit(path, "SELECT count(*) FROM sessions") == [(1,)]
    assert lost == [True]


async def test_nothing_is_polled_without_a_watch(store: Any) -> None:
    watches = [store.watch("/a"), store.watch("/a"), store.watch("/b")]
    await watches[2].changed()
    assert sorted(store._worker._stamps) == ["/a", "/b"]
    for watch in watches[:1] + watches[2:]:
        watch.close()
    await store.exists("/a")
    assert sorted(store._worker._stamps) == ["/a"]
    watches[1].close()
    await store.exists("/a")
    assert store._worker._stamps == {}


async def test_a_watch_begun_while_the_file_is_locked_notifies_later(
    opened: Opener, path: Path, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "START_TIMEOUT_S", 0.0)
    store = await opened()
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    watch = store.watch("/a")
    with pytest.raises(MetadataUnavailable):
        await store.exists("/a")
    lock.execute("ROLLBACK")
    lock.close()
    await asyncio.wait_for(watch.changed(), 10)
    await tools.quiet(watch)
    await store.create("/a")
    await asyncio.wait_for(watch.changed(), 5)


def begin_unfinished(path: Path) -> sqlite3.Connection:
    """A transaction that has written to the file already, and holds its lock."""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA cache_size = 4")
    writer.execute("BEGIN EXCLUSIVE")
    for number in range(40):
        writer.execute(
            "INSERT INTO nodes VALUES (?, '/', ?, 0, NULL, 0, 1, 1)", (f"/{number:02d}", number.to_bytes(4_000))
        )
    writer.execute("UPDATE counter SET changes = changes + 1")
    writer.execute("UPDATE nodes SET children_changed = (SELECT changes FROM counter) WHERE path = '/'")
    return writer


async def test_a_look_that_meets_a_lock_is_reported_only_when_none_succeeds(
    opened: Opener, path: Path, tools: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(timeout_s=60.0)
    await store.watch("/a").changed()
    writer = begin_unfinished(path)

    async def notified() -> bool:
        return "not reachable" in capfd.readouterr().err

    async def silent() -> bool:
        return not await notified()

    await tools.throughout(silent, 0.4)
    monkeypatch.setattr(sqlite_module, "BUSY_TIMEOUT_S", 0.1)
    await tools.eventually(notified)
    writer.execute("ROLLBACK")
    writer.close()


async def test_what_was_written_before_its_commit_is_seen_after_it(opened: Opener, path: Path, tools: Any) -> None:
    store = await opened(timeout_s=60.0)
    watch = store.watch("/")
    await watch.changed()
    writer = begin_unfinished(path)
    await tools.quiet(watch)
    writer.execute("COMMIT")
    writer.close()
    await asyncio.wait_for(watch.changed(), 5)
    assert len(await store.children("/")) == 40


SET = """
import asyncio, sys
from boki_common.metadata.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1], session_timeout_s=60.0)
    await store.start()
    for line in sys.stdin:
        await store.set("/a", line.encode(), version=int(line))
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(params=["notified of writes", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a store learns of changes."""
    if request.param == "polling":

        def none(path: bytes) -> int:
            raise OSError("too many instances")

        monkeypatch.setattr(file_changes, "_watched", none)
    return str(request.param)


@pytest.mark.processes
async def test_each_change_of_another_process_is_seen_however_quickly_it_follows(
    opened: Opener, path: Path, way: str
) -> None:
    """The file keeps its length, and many changes fall into one tick of the clock that file times are written by."""
    store = await opened(timeout_s=60.0)
    await store.create("/a", b"x" * 100)
    watch = store.watch("/a")
    await watch.changed()
    child = subprocess.Popen([sys.executable, "-c", SET, str(path)], stdin=subprocess.PIPE, text=True, bufsize=1)
    assert child.stdin is not None
    for number in range(40):
        child.stdin.write(f"{number}\n")
        while (await store.get("/a")).version <= number:
            await asyncio.wait_for(watch.changed(), 5)
    child.stdin.close()
    assert await asyncio.to_thread(child.wait) == 0


async def test_a_store_that_nobody_changes_is_not_looked_at(opened: Opener, path: Path, tools: Any) -> None:
    store = await opened(timeout_s=60.0)
    watch = store.watch("/a")
    await watch.changed()
    await tools.quiet(watch)
    worker: Any = store._worker
    asked: list[str] = []
    await worker.call(lambda: worker._tree._connection.set_trace_callback(asked.append))

    async def looked_at() -> bool:
        return bool(asked)

    async def not_looked_at() -> bool:
        return not asked

    await tools.throughout(not_looked_at, 0.4)
    edit(path, "UPDATE counter SET changes = changes + 1")
    await tools.eventually(looked_at)


async def test_a_transaction_that_meets_a_lock_is_begun_again_until_it_is_gone(store: Any, path: Path) -> None:
    lock = sqlite3.connect(path, isolation_level=None)
    for writes in (True, False):
        lock.execute("BEGIN EXCLUSIVE")
        asyncio.get_running_loop().call_later(4 * LOCK_WAIT_MS / 1_000, lock.execute, "ROLLBACK")
        if writes:
            await store.create("/a")
        else:
            assert await store.exists("/a")
        assert not lock.in_transaction, "it waited for the end of the other one"
    lock.close()


async def test_a_store_that_starts_waits_longer_for_a_lock(
    opened: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of a cluster start at once, on a disk that may be slow to flush."""
    await (await opened()).close()
    monkeypatch.setattr(sqlite_module, "BUSY_TIMEOUT_S", 0.0)
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    asyncio.get_running_loop().call_later(4 * LOCK_WAIT_MS / 1_000, lock.execute, "ROLLBACK")
    store = await opened()
    assert not lock.in_transaction
    lock.execute("BEGIN EXCLUSIVE")
    asyncio.get_running_loop().call_later(4 * LOCK_WAIT_MS / 1_000, lock.execute, "ROLLBACK")
    await store.create("/a")
    assert not lock.in_transaction
    monkeypatch.setattr(store._worker, "_patient_until", 0.0)
    lock.execute("BEGIN EXCLUSIVE")
    with pytest.raises(MetadataUnavailable, match="locked"):
        await store.create("/b")
    lock.close()


def test_who_waited_long_for_a_lock_gives_others_a_timeout_to_come_back(path: Path) -> None:
    session = sqlite_module._Session(TIMEOUT_S)
    session.begin_in_this_process()
    tree = SqliteTree(open_database(str(path)), str(path))
    tree.write(lambda: session.own(tree))
    edit(path, f"INSERT INTO sessions VALUES ('old', '{process_identity()[0]}', 1, 1, 'another', 0)")
    session._on_time_since -= 100.0
    assert session.judges_age()

    def waited() -> None:
        session._renewed -= TIMEOUT_S  # for the lock, from when the write was asked for
        session.renew(tree)

    tree.write(waited)
    assert {row.session for row in tree.sessions()} == {"old", session.id}
    tree.close()


async def test_commits_are_durable_and_locks_are_simple(store: Any) -> None:
    connection = store._worker._tree._connection
    for pragma, expected in (("journal_mode", "persist"), ("journal_size_limit", 1 << 20), ("synchronous", 2)):
        found = await store._worker.call(lambda pragma=pragma: connection.execute(f"PRAGMA {pragma}").fetchone()[0])
        assert found == expected, pragma


INCREMENT = """
import asyncio, sys
from boki_common.errors import BadVersion, NodeExists
from boki_common.metadata.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.start()
    try:
        await store.create("/counter", b"0")
    except NodeExists:
        pass
    done = 0
    while done < int(sys.argv[2]):
        value, version = await store.get("/counter")
        try:
            acked = await store.set("/counter", b"%d" % (int(value) + 1), version=version)
        except BadVersion:
            continue
        done += 1
        print(acked, flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.processes
async def test_processes_that_make_the_file_and_write_at_once(opened: Opener, path: Path) -> None:
    command = [sys.executable, "-c", INCREMENT, str(path), "40"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate) for child in children))
    assert [child.returncode for child in children] == [0] * 4
    acked = sorted(int(number) for output, _errors in outputs for number in output.split())
    assert acked == list(range(1, 161)), "each version was acknowledged to one writer"
    store = await opened()
    assert await store.get("/counter") == Versioned(b"160", 160)


@pytest.mark.processes
async def test_what_was_acknowledged_survives_kill_9(opened: Opener, path: Path) -> None:
    last = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", INCREMENT, str(path), "100000"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(30):
            await asyncio.to_thread(child.stdout.readline)
        child.kill()
        rest = await asyncio.to_thread(child.stdout.read)
        child.wait()
        child.stdout.close()
        complete = rest[: rest.rfind(b"\n") + 1].split()
        store = await opened()
        found = (await store.get("/counter")).version
        last = max([last, *(int(number) for number in complete)])
        assert found >= last
        await store.close()


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/export /mnt/share nfs4 rw 0 0
//host/c /mnt/share\\040two cifs rw 0 0
tmpfs /mnt/share/local tmpfs rw 0 0
damaged
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/home", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/er", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/share two", "cifs"),
        ("/mnt/share/local/x", "tmpfs"),
    ],
)
def test_the_file_system_of_a_folder(folder: str, kind: str) -> None:
    assert file_system_of(folder, MOUNTS) == kind
    assert (kind in NETWORK_FILE_SYSTEMS) == (kind in ("nfs4", "cifs"))


def test_no_mount_table() -> None:
    assert file_system_of("/", "") == ""


async def test_a_file_that_is_out_of_reach_is_reported_once_and_so_is_its_return(path: Path) -> None:
    said = io.StringIO()
    with logs.configured(stream=said):
        worker = sqlite_module._Worker(
            str(path), TIMEOUT_S, asyncio.get_running_loop(), lambda: None, lambda _: None, create=True
        )

        def fails() -> None:
            raise sqlite3.OperationalError("unable to open database file")

        for _ in range(100):
            worker._in_background(fails)
        assert said.getvalue().count("not reachable") == 1
        for _ in range(100):
            worker._in_background(lambda: None)
        assert said.getvalue().count("reachable again") == 1
        worker._in_background(fails)
    assert said.getvalue().count("\n") == 3
