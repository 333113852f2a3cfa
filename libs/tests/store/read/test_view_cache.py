"""Views that a process keeps, and up to where they hold."""

from __future__ import annotations

from bokistore.model.fold import View, gone
from bokistore.read.view_cache import KnownView, ViewCache, common_place


def view_of(cache: ViewCache, name: str) -> View | None:
    known = cache.get(name)
    return None if known is None else known.view


def test_it_is_bounded_and_never_goes_back() -> None:
    cache = ViewCache(2)
    cache.put(View("a", 5))
    cache.put(View("a", 4))
    assert view_of(cache, "a") == View("a", 5)
    cache.put(View("b", 1))
    cache.get("a")
    cache.put(View("c", 1))
    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]
    none = ViewCache(0)
    none.put(View("a", 5))
    assert none.get("a") is None


def test_a_view_holds_from_where_it_was_seen_to_where_nothing_more_was_found() -> None:
    cache = ViewCache()
    cache.put(View("a", 5), upto=9)
    known = cache.get("a")
    assert known is not None and [place for place in range(12) if known.holds_at(place)] == [5, 6, 7, 8, 9]
    cache.put(View("a", 5), upto=7)
    assert cache.get("a") == KnownView(View("a", 5), 9), "what was found once stays true"
    cache.put(View("a", 8))
    assert cache.get("a") == KnownView(View("a", 8), 8), "of another view nothing was found yet"
    cache.drop("a")
    assert cache.get("a") is None
    cache.drop("a")


def test_what_was_missing_as_of_an_unknown_place_holds_nowhere() -> None:
    cache = ViewCache()
    cache.put(gone("a", 5), upto=5, proven=False)
    known = cache.get("a")
    assert known is not None and not any(known.holds_at(place) for place in range(12))
    assert (known.beyond, common_place([known])) == (5, 0)
    cache.put(gone("a", 5), upto=9)
    known = cache.get("a")
    assert known is not None and [place for place in range(12) if known.holds_at(place)] == [5, 6, 7, 8, 9]
    assert known.beyond == 9, "up to there it was looked at"


def test_whether_others_change_it_is_remembered_until_it_is_looked_at_again() -> None:
    cache = ViewCache()
    cache.put(View("a", 1))
    for seen, steady, expected in [(2, False, False), (3, None, False), (3, True, True), (4, None, True)]:
        cache.put(View("a", seen), steady=steady)
        known = cache.get("a")
        assert known is not None and known.steady is expected


def test_views_are_a_snapshot_where_all_of_them_hold() -> None:
    old, late, short = KnownView(View("a", 2), 9), KnownView(View("b", 7), 8), KnownView(View("c", 1), 5)
    assert common_place([old]) == 9
    assert common_place([old, late]) == 8
    assert common_place([old, late], 8) == 8 and common_place([old, late], 9) == 0
    assert common_place([late, short]) == 0, "they never were there together, or nobody knows"


def test_what_lies_above_a_checkpoint_is_counted_down_and_never_up() -> None:
    cache = ViewCache()
    cache.recount("a", 0, 0)
    cache.put(View("a", 5, records=7, size=70), upto=9, steady=False)
    cache.recount("a", 8, 80)
    assert cache.get("a") == KnownView(View("a", 5, records=7, size=70), 9, False)
    cache.recount("a", 2, 20)
    assert cache.get("a") == KnownView(View("a", 5, records=2, size=20), 9, False)
