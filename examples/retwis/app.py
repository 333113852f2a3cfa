"""The operations of Retwis as in the evaluation of Boki (SOSP '21, section 7.3).

| object | holds |
|---|---|
| `username:<name>` | id |
| `userid:<id>` | username, password, auth; followers and followees by id, and their counts; ids of the newest posts that reached the user |
| `post:<id>` | id, author, body |
| `timeline` | ids of the newest posts of all users |

Writes that belong together are one transaction, which is one record. A post's push to the global timeline is in its record too, but
without a condition, so posts of different users do not conflict there.
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
"""Maximum of followers that get a post."""
SHOWN: Final = 8
"""Posts that one read of a timeline returns."""

Choose = Callable[[Sequence[str], int], Sequence[str]]
"""Function that chooses a number of items, such as `random.sample`."""


class NameTaken(LogBookError):
    """The user name is taken."""


def username(name: str) -> str:
    """Return the name of the object of a user name."""
    return f"username:{name}"


def user(id: str) -> str:
    """Return the name of the object of a user."""
    return f"userid:{id}"


def post(id: str) -> str:
    """Return the name of the object of a post."""
    return f"post:{id}"


def new_user(name: str, password: str) -> JsonObject:
    """Return a user without followers, followees and posts."""
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
    """The social network in a store; see the module.

    Attributes:
        store: the store with all objects.
    """

    def __init__(self, store: BokiStore, *, timeline_posts: int = TIMELINE_POSTS, user_posts: int = USER_POSTS) -> None:
        """Keep at most `timeline_posts` ids in the global timeline and `user_posts` in that of a user."""
        self.store: Final = store
        self._timeline_posts = timeline_posts
        self._user_posts = user_posts

    async def register(self, name: str, password: str) -> str:
        """Create a user and return its id.

        Raises:
            NameTaken: another user has the name.
        """
        number = await self.store.object("next_user_id").inc("n")
        id = f"{int(number):08x}"

        async def body(tx: Transaction) -> None:
            if await tx[username(name)].exists():
                raise NameTaken(f"the user name {name!r} is taken", name=name)
            tx[username(name)].set("", {"id": id})
            tx[user(id)].set("", new_user(name, password))

        await self.store.transact(body)
        return id

    async def follow(self, follower: str, followee: str) -> bool:
        """Make one user follow another; return False if it did already or one of them does not exist."""

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
        """Return the auth of a user, or None for a wrong name or password; both objects are read in one snapshot."""
        async with self.store.snapshot(of=[username(name)]) as then:
            id = await then.get(username(name), "id")
            if id is None:
                return None
            one = await then.value(user(str(id)))
        assert one is not None, "a name and its user are created together"
        return str(one["auth"]) if one["password"] == password else None

    async def profile(self, id: str) -> JsonObject | None:
        """Return the object of a user, or None."""
        return await self.store.object(user(id)).value()

    async def posts(self, id: str | None) -> list[JsonObject]:
        """Return the newest posts in a user's timeline, or in the global one for None; list and posts are one snapshot."""
        listing = TIMELINE if id is None else user(id)
        async with self.store.snapshot(of=[listing]) as then:
            ids = (await then.get(listing, "posts", [], type=list[str]))[-SHOWN:]
            found = await then.values([post(one) for one in reversed(ids)])
        assert None not in found, f"a timeline lists posts that do not exist: {ids}"
        return [one for one in found if one is not None]

    async def post(self, author: str, id: str, body: str, choose: Choose) -> list[str]:
        """Publish a post to the global timeline and to some followers of its author; return these followers."""

        async def publish(tx: Transaction) -> list[str]:
            followers = list(cast("JsonObject", await tx[user(author)].get("followers", {})))
            to = list(choose(sorted(followers), min(FAN_OUT, len(followers))))
            tx[post(id)].set("", {"id": id, "author": author, "body": body})
            for one in to:
                tx[user(one)].push("posts", id, limit=self._user_posts)
            tx.send(TIMELINE, Push("posts", id, self._timeline_posts))
            return to

        return await self.store.transact(publish)
