"""Types: a typed program is accepted by pyright as it stands, and each of fifteen wrong ones is refused at its wrong line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libs.tests.typed_programs import ROOT, check_typed_programs

GOOD = """
from dataclasses import dataclass

import boki
import bokistore.sync
from bokistore import BokiStore, Inc, Json, Push, StoreSettings, Transaction, Version


@dataclass
class User:
    name: str
    age: int = 0


async def program(client: boki.Client) -> None:
    store = BokiStore(client.book("shop"), settings=StoreSettings(isolation="snapshot"))
    users = store.collection("user", User)

    @store.transactional(isolation="serializable")
    async def birthday(tx: Transaction, id: str, *, years: int = 1) -> int:
        user = await users.within(tx).get(id)
        if user is None:
            return 0
        await users.within(tx).put(id, User(user.name, user.age + years))
        tx["count"].inc("birthdays")
        return user.age + years

    age: int = await birthday("ann", years=2)
    async with store.transaction() as tx:
        value: Json = await tx["x"].get("a.b")
        count: int = await tx["x"].get("n", 0, type=int) + await store.object("x").get("n", 1, type=int, at=7)
        maybe: float | None = await tx["x"].get("f", type=float)
        tx["x"].set("n", count if maybe is None else maybe)
        texts: list[str] = await tx["x"].get("l", [], type=list[str])
        tx["x"].set("texts", [one.upper() for one in texts])
        tx["x"].set("a", [value, {"age": age}])
        tx.send("page", Push("ages", age, 10))
    length: int = await store.object("x").push("l", 1, limit=3)
    results: list[Json] = await store.object("x").apply(Inc("n", length), Push("l", 2))
    async for id, user in users.scan():
        print(id, user.age + 1, results)
    async with store.snapshot(consistency="linearizable") as then:
        ann = await then.get("user/ann", type=User)
        print(ann.age if ann is not None else await then.get("user/bob", "age", 18, type=int) > 17)
        found = await then.value("x")
        print(found["a"] if found is not None else then.at)
    versions: list[Version] = await store.object("x").history(limit=10)
    names: list[str] = await store.names()
    async with store.carrier("host-7"):
        print(names, await store.sweep())
    async for change in store.object("x").watch(start=versions[0].seqnum):
        print(change.seqnum, [one.path for one in change.changes])


def blocking(client: boki.sync.Client) -> int | float:
    store = bokistore.sync.BokiStore(client.book("shop"))

    def body(tx: bokistore.sync.Transaction, name: str) -> bool:
        tx[name].inc("n", 1.5)
        return tx[name].get("n", 0.0, type=float) > 1 and tx[name].exists()

    done: bool = store.transact(body, "x")
    user = store.collection("user", User).get("ann")
    return store.object("x").inc("n", int(done) if user is None else user.age)
"""

WRONG = {
    "a value that is no JSON": 'await store.object("x").set("a", object())',
    "a set": 'await store.object("x").set("a", {1, 2})',
    "an amount that is a text": 'await store.object("x").inc("n", "1")',
    "a number of any JSON": 'await tx["x"].get("n", 0) < 1',
    "a number that may be missing": 'await tx["x"].get("n", type=int) < 1',
    "a default of another type": 'n: int = await tx["x"].get("n", "none", type=int)',
    "a path that is a number": 'await store.object("x").get(5)',
    "an isolation that is none": 'store.transactional(isolation="read committed")',
    "a consistency that is none": 'await store.object("x").get("a", consistency="eventual")',
    "an argument that is missing": "await store.transact(move, 'ann')",
    "an argument of the wrong type": "await store.transact(move, 'ann', 'bob', '10')",
    "a result of the wrong type": "text: str = await store.transact(move, 'ann', 'bob', 10)",
    "a value of another type": 'await users.create("ann", "Ann")',
    "a field that is not there": '(await users.get("ann")).name',
    "an awaited write in a transaction": 'await tx["x"].set("n", 1)',
}

FRAME = """
from dataclasses import dataclass

from bokistore import BokiStore, Collection, Transaction


@dataclass
class User:
    name: str


async def move(tx: Transaction, source: str, target: str, amount: int) -> bool:
    return bool(source and target and amount)


async def program(store: BokiStore, users: Collection[User], tx: Transaction) -> None:
"""


def shown(page: str) -> str:
    """Return the function `move` of a page, which reads and changes two objects."""
    found = re.search(r"^async def move\(.*?(?=^\S|\n\n\n)", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"expected a function `move` in {page}"
    return "\n\n" + found[0].replace("move", f"move_of_{Path(page).stem}")


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    check_typed_programs(
        tmp_path,
        GOOD + shown("libs/bokistore/README.md") + shown("docs/store.md"),
        FRAME,
        list(WRONG.values()),
        ("bokistore", "bokilib"),
    )
