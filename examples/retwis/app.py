"""The operations of Retwis, as the evaluation of Boki (SOSP '21, section 7.3) has them.

| object | holds |
|---|---|
| `username:<name>` | id |
| `userid:<id>` | username, password, auth; followers and followees by id, and how many; posts: the newest ids of those that it follows |
| `post:<id>` | id, author, body |
| `timeline` | the newest ids of all |

Whatever is written together is one transaction, which is one record. A post joins the global timeline in its record too, but without a
condition: posts of different users do not wait for each other there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from boki_common.errors import LogBookError
from bokistore import BokiStore, JsonObject, Push, Transaction

TIMELINE: Final = "timeline"
TIMELINE_POSTS: Final = 96
USER_POSTS: Final = 24
FAN_OUT: Final = 4
"""A post goes to so many followers of its author."""
SHOWN: Final = 8

Choose = Callable[[Sequence[str], int], Sequence[str]]
"""Some of many: `random.sample`, or what a test chooses."""


class NameTaken(LogBookError):
    """There is a user of that name."""


def username(name: str) -> str:
    """The object of a name."""
    return f"username:{name}"


def user(id: str) -> str:
    """The object of a user."""
    return f"userid:{id}"


def post(id: str) -> str:
    """The object of a post."""
    return f"post:{id}"


def new_user(name: str, password: str) -> JsonObject:
    """A user whom nobody follows yet."""
    return {
        "username": name,
        "password": password,
        "auth": f"auth of {name}",
        "followers": {},
        "followees": {},
        "followed": 0,
        "following": 0,
        "posts": [],
    }


class Retwis:
    """See the module."""

    def __init__(self, store: BokiStore, *, timeline_posts: int = TIMELINE_POSTS, user_posts: int = USER_POSTS) -> None:
        self.store: Final = store
        self._timeline_posts = timeline_posts
        self._user_posts = user_posts

    async def register(self, name: str, password: str) -> str:
        """A new user; returns its id. Raises NameTaken."""
        number = await self.store.object("next_user_id").inc("n")
        id = f"{int(number):08x}"

        async def body(tx: Transaction) -> None:
            if await tx[username(name)].exists():
                raise NameTaken(f"there is a user {name!r} already", name=name)
            tx[username(name)].set("", {"id": id})
            tx[user(id)].set("", new_user(name, password))

        await self.store.transact(body)
        return id

    async def follow(self, follower: str, followee: str) -> bool:
        """One user follows another; returns whether it did not before."""

        async def body(tx: Transaction) -> bool:
            one, other = await tx.values([user(follower), user(followee)])
            if one is None or other is None or followee in cast("JsonObject", one["followees"]):
                return False
            tx[user(follower)].set(f"followees.{followee}", True)
            tx[user(follower)].inc("following")
            tx[user(followee)].set(f"followers.{follower}", True)
            tx[user(followee)].inc("followed")
            return True

        return await self.store.transact(body)

    async def login(self, name: str, password: str) -> str | None:
        """The auth of a user, None if there is none of that name and password. Both are read of one snapshot."""
        async with self.store.snapshot(of=[username(name)]) as then:
            id = await then.get(username(name), "id")
            if id is None:
                return None
            one = await then.value(user(str(id)))
        assert one is not None, "a name and its user are made together"
        return str(one["auth"]) if one["password"] == password else None

    async def profile(self, id: str) -> JsonObject | None:
        """A user."""
        return await self.store.object(user(id)).value()

    async def posts(self, id: str | None) -> list[JsonObject]:
        """The newest posts that a user sees; None: of all. One snapshot of the list and of what it names."""
        listing = TIMELINE if id is None else user(id)
        async with self.store.snapshot(of=[listing]) as then:
            listed = await then.get(listing, "posts", [])
            ids = [str(one) for one in cast("list[str]", listed)[-SHOWN:]]
            found = await then.values([post(one) for one in reversed(ids)])
        assert None not in found, f"a list names posts that are not there: {ids}"
        return [one for one in found if one is not None]

    async def post(self, author: str, id: str, body: str, choose: Choose) -> list[str]:
        """A new post, which goes to some of the author's followers; returns to whom."""

        async def publish(tx: Transaction) -> list[str]:
            followers = list(cast("JsonObject", await tx[user(author)].get("followers", {})))
            to = list(choose(sorted(followers), min(FAN_OUT, len(followers))))
            tx[post(id)].set("", {"id": id, "author": author, "body": body})
            for one in to:
                tx[user(one)].push("posts", id, limit=self._user_posts)
            tx.send(TIMELINE, Push("posts", id, self._timeline_posts))
            return to

        return await self.store.transact(publish)
