"""The promises of Retwis, checked against the calls that workers noted and a snapshot of the network. Pure.

    faults = check(calls, state)          # sentences; [] if every promise holds

A worker notes each call before it makes it, and then its result. A call without a result, because the worker was killed or the
answer was lost, may have happened or not. For all other calls:

- what was acknowledged exists, exactly once; what was refused does not; everything that exists was requested
- names and users match; followers and followees match; counts are right
- a timeline drops its oldest posts only: of each client it has the newest posts, in the order in which the client made them
- a post is in the timelines to which it was acknowledged to go, and in no others than those of its author's followers and the global one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

DONE: Final = "done"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"


class NotedCall(NamedTuple):
    """Call of a client, as its worker noted it.

    Attributes:
        client: name of the client, which makes one call at a time.
        number: number of the call among the client's calls.
        operation: name of the operation.
        about: arguments that the check needs.
        outcome: DONE, REFUSED or UNKNOWN.
        answer: result of the call, or None.
    """

    client: str
    number: int
    operation: str
    about: Mapping[str, Any]
    outcome: str
    answer: Any = None


class NetworkState(NamedTuple):
    """Snapshot of the network.

    Attributes:
        names: objects of user names, by name.
        users: objects of users, by id.
        posts: objects of posts, by id.
        timeline: ids in the global timeline, oldest first.
        timeline_posts: maximum length of the global timeline.
        user_posts: maximum length of a user's timeline.
    """

    names: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]
    posts: Mapping[str, Mapping[str, Any]]
    timeline: Sequence[str]
    timeline_posts: int
    user_posts: int


def check(notes: Iterable[NotedCall], state: NetworkState) -> list[str]:
    """Return the faults of a network, given all calls."""
    kept = list(notes)
    return [*_users(kept, state), *_follows(kept, state), *_posts(kept, state), *_lists(kept, state)]


def _of(notes: Iterable[NotedCall], operation: str, outcome: str | None = None) -> list[NotedCall]:
    return [note for note in notes if note.operation == operation and outcome in (None, note.outcome)]


def _users(notes: list[NotedCall], state: NetworkState) -> list[str]:
    faults = []
    tried = {note.about["name"] for note in _of(notes, "register")}
    for note in _of(notes, "register", DONE):
        name, id = note.about["name"], note.answer
        if state.names.get(name, {}).get("id") != id:
            faults.append(f"user {name} was registered as {id}, but does not exist")
    for name, known in state.names.items():
        if name not in tried:
            faults.append(f"user {name} was never registered")
        if state.users.get(known["id"], {}).get("username") != name:
            faults.append(f"the name {name} and its user {known['id']} do not match")
    if len(state.names) != len(state.users):
        faults.append(f"{len(state.names)} names for {len(state.users)} users")
    return faults


def _follows(notes: list[NotedCall], state: NetworkState) -> list[str]:
    faults = []
    tried = {(note.about["follower"], note.about["followee"]) for note in _of(notes, "follow")}
    there = {(one, other) for one, known in state.users.items() for other in known["followees"]}
    back = {(one, other) for other, known in state.users.items() for one in known["followers"]}
    acknowledged = {(n.about["follower"], n.about["followee"]) for n in _of(notes, "follow", DONE) if n.answer}
    faults += [f"{one} follows {other}, but is not among its followers" for one, other in sorted(there - back)]
    faults += [f"{other} is followed by {one}, but is not among its followees" for one, other in sorted(back - there)]
    faults += [f"{one} follows {other}, which was never requested" for one, other in sorted(there - tried)]
    faults += [f"{one} was acknowledged to follow {other}, but does not" for one, other in sorted(acknowledged - there)]
    for id, known in state.users.items():
        counts = (known["following"], known["followed"])
        found = (len(known["followees"]), len(known["followers"]))
        if counts != found:
            faults.append(f"user {id} counts {counts} followees and followers, but has {found}")
    return faults


def _posts(notes: list[NotedCall], state: NetworkState) -> list[str]:
    faults = []
    calls = {note.about["id"]: note for note in _of(notes, "post")}
    for id, note in calls.items():
        known = state.posts.get(id)
        if note.outcome == DONE and known is None:
            faults.append(f"post {id} of {note.client} was acknowledged, but is lost")
        if note.outcome == REFUSED and known is not None:
            faults.append(f"post {id} of {note.client} was refused, but exists")
        if known is not None and (known["author"], known["body"]) != (note.about["author"], note.about["body"]):
            faults.append(f"post {id} differs from what {note.client} wrote")
    return faults + [f"post {id} was never written" for id in state.posts if id not in calls]


def _lists(notes: list[NotedCall], state: NetworkState) -> list[str]:
    """Return the faults of the global timeline and of each user's."""
    calls = sorted(_of(notes, "post"), key=lambda note: (note.client, note.number))
    written = [note for note in calls if note.about["id"] in state.posts]
    faults = _list_faults("the global timeline", state.timeline, written, written, state.timeline_posts)
    due: dict[str, list[NotedCall]] = {id: [] for id in state.users}
    possible: dict[str, list[NotedCall]] = {id: [] for id in state.users}
    for note in written:
        for one in note.answer if note.outcome == DONE else ():
            due.setdefault(one, []).append(note)
        for one in state.users.get(note.about["author"], {}).get("followers", ()):
            possible.setdefault(one, []).append(note)
    for id, known in state.users.items():
        faults += _list_faults(f"the timeline of user {id}", known["posts"], due[id], possible[id], state.user_posts)
    return faults


def _list_faults(
    what: str, listed: Sequence[str], due: Sequence[NotedCall], possible: Sequence[NotedCall], limit: int
) -> list[str]:
    """Return the faults of one timeline.

    Args:
        what: name of the timeline in sentences.
        listed: ids in the timeline, oldest first.
        due: calls whose posts it must have, unless it dropped them.
        possible: calls whose posts it may have, in the order of each client; `due` is part of them.
        limit: maximum length of the timeline.
    """
    faults = []
    if len(set(listed)) != len(listed):
        faults.append(f"{what} has a post twice")
    if len(listed) > limit:
        faults.append(f"{what} has {len(listed)} posts, more than {limit}")
    places = {id: place for place, id in enumerate(listed)}
    strangers = places.keys() - {note.about["id"] for note in possible}
    faults += [f"{what} has post {id}, which does not belong there" for id in sorted(strangers)]
    by_client: dict[str, list[str]] = {}
    must = {note.about["id"] for note in due}
    for note in possible:
        if note.about["id"] in must or note.about["id"] in places:
            by_client.setdefault(note.client, []).append(note.about["id"])
    for client, ids in by_client.items():
        found = [places[id] for id in ids if id in places]
        if found != sorted(found):
            faults.append(f"{what} has the posts of {client} in the wrong order")
        dropped = len(ids) - len(found)
        missing = [id for id in ids[dropped:] if id not in places] if len(listed) == limit else ids
        faults += [f"{what} lacks post {id} of {client}" for id in missing if id not in places]
    return faults
