"""Recovering and deleting ledgers by command: who is fenced, what is found, and what is not deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boki_cli.testing.bookies import BookieCluster
from boki_common.errors import LedgerFenced, NoSuchLedger
from boki_ledger.write.writer import LedgerWriter

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


def open_ledger(cluster: BookieCluster, *, password: bytes = b"", role: bytes | None = None) -> LedgerWriter:
    """A ledger with three entries, and its writer."""

    async def write() -> LedgerWriter:
        await cluster.ready()
        custom = None if role is None else {"boki.role": role}
        writer = await cluster.client.create(password=password, custom=custom)
        for payload in (b"one", b"two", b"three"):
            await writer.append(payload)
        return writer

    return cluster.run(write())


def state(cluster: BookieCluster, ledger_id: int) -> str:
    return cluster.run(cluster.client.metadata_of(ledger_id)).state.name


def test_recover_fences_and_closes_and_says_what_it_found(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    writer = open_ledger(bookies)
    call = ("ledger", "recover", str(writer.ledger_id), "--metadata", bookies.uri)
    done = run_boki(*call)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"ledger {writer.ledger_id} was OPEN; it is fenced, and closed with 3 entries, 11 bytes\n"
    with pytest.raises(LedgerFenced):
        bookies.run(writer.append(b"late"))
    assert run_boki(*call).out == f"ledger {writer.ledger_id} was closed already: 3 entries, 11 bytes\n"
    assert json.loads(run_boki(*call, "--json").out) == {
        "ledger_id": writer.ledger_id,
        "found": "CLOSED",
        "state": "CLOSED",
        "last_entry": 2,
        "length_bytes": 11,
    }


def test_a_wrong_password_fences_nothing(run_boki: RunCommandLine, bookies: BookieCluster, tmp_path: Path) -> None:
    writer = open_ledger(bookies, password=b"secret")
    call = ("ledger", "recover", str(writer.ledger_id), "--metadata", bookies.uri)
    wrong, right = tmp_path / "wrong", tmp_path / "right"
    wrong.write_bytes(b"guess\n")
    right.write_bytes(b"secret\n")
    for options_ in ((), ("--password-file", str(wrong))):
        done = run_boki(*call, *options_)
        assert (done.code, done.out) == (4, "") and "password" in done.err
        assert "secret" not in done.err
    assert state(bookies, writer.ledger_id) == "OPEN"
    bookies.run(writer.append(b"the writer goes on"))
    done = run_boki(*call, "--password-file", str(right), "--json")
    assert (done.code, json.loads(done.out)["last_entry"]) == (0, 3)


def test_recovery_without_enough_bookies_is_refused_and_may_be_repeated(
    run_boki: RunCommandLine, bookies: BookieCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKI_LEDGER_RETRY_FOR_S", "0.1")
    monkeypatch.setenv("BOKI_LEDGER_ANSWER_TIMEOUT_S", "0.2")
    writer = open_ledger(bookies)
    for number in (0, 1):
        bookies.run(bookies.stop_bookie(number))
    call = ("ledger", "recover", str(writer.ledger_id), "--metadata", bookies.uri)
    run_boki(*call).refused("try again", code=4)
    assert state(bookies, writer.ledger_id) == "IN_RECOVERY"
    monkeypatch.setenv("BOKI_LEDGER_RETRY_FOR_S", "10")
    bookies.run(bookies.start_bookie(0))
    done = run_boki(*call)
    assert (done.code, done.out.split(";")[0]) == (0, f"ledger {writer.ledger_id} was IN_RECOVERY")


def test_delete_needs_a_word_and_then_deletes(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    ledger_id = open_ledger(bookies).ledger_id
    call = ("ledger", "delete", str(ledger_id), "--metadata", bookies.uri)
    run_boki(*call).refused("--yes")
    assert state(bookies, ledger_id) == "OPEN"
    assert run_boki(*call, "--yes") == (0, f"ledger {ledger_id} is deleted\n", "")
    with pytest.raises(NoSuchLedger):
        bookies.run(bookies.client.metadata_of(ledger_id))
    assert run_boki(*call, "--yes").code == 4, "there is no such ledger any more"


@pytest.mark.parametrize(("typed", "code", "deleted"), [("y\n", 0, True), ("n\n", 4, False), ("\n", 4, False)])
def test_delete_asks_on_a_terminal(
    run_boki: RunCommandLine, bookies: BookieCluster, typed: str, code: int, deleted: bool
) -> None:
    ledger_id = open_ledger(bookies).ledger_id
    assert run_boki("ledger", "delete", str(ledger_id), "--metadata", bookies.uri, typed=typed).code == code
    assert (ledger_id in bookies.run(bookies.client.list())) is not deleted


def test_a_ledger_that_a_log_needs_is_deleted_by_force_only(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    ledger_id = open_ledger(bookies, role=b"data").ledger_id
    call = ("ledger", "delete", str(ledger_id), "--metadata", bookies.uri, "--yes", "--json")
    done = run_boki(*call)
    assert done.code == 4
    assert "records of a log" in json.loads(done.err)["message"] and "--force" in done.err
    assert state(bookies, ledger_id) == "OPEN"
    done = run_boki(*call, "--force")
    assert json.loads(done.out) == {
        "ledger_id": ledger_id,
        "deleted": True,
        "was": {"state": "OPEN", "last_entry": -1, "length_bytes": 0},
    }
