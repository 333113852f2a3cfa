"""What parts of a cluster say together: values only."""

from __future__ import annotations

from boki_cli.facts.cluster_facts import ClusterStatus, Part, is_served, lag_entries, places_of


def engine(term: int, indexed: int, lag: int | None = None) -> Part:
    status = {"term": term, "position": {"received_entry": indexed, "indexed_entry": indexed}, "lag_entries": lag}
    return Part("engine", "h:1", True, status=status)


def sequencer(term: int, entries: int) -> Part:
    return Part("sequencer", "h:2", True, status={"term": {"term": term, "entries": entries}})


def test_lag_is_what_the_sequencer_of_the_same_term_is_ahead() -> None:
    standby = Part("sequencer", "h:3", True, status={"term": None})
    assert lag_entries(engine(3, 10), [standby, sequencer(3, 14)]) == 4
    assert lag_entries(engine(3, 10), [sequencer(3, 9)]) == 0
    assert lag_entries(engine(3, 10, lag=2), [sequencer(4, 14)]) == 2
    assert lag_entries(engine(3, 10), []) is None
    assert [place.term for place in places_of(engine(3, 10), ())] == [3]


def test_a_log_is_served_by_the_sequencer_that_the_view_names_and_no_other() -> None:
    named = {"sequencer": "one", "term": 4}
    serving = Part("sequencer", "s", True, "one", status={"term": {"term": 4}})
    assert is_served(named, [serving])
    assert not is_served(named, [Part("sequencer", "s", False, "one", status={"term": {"term": 4}})])
    assert not is_served(named, [Part("sequencer", "s", True, "two", status={"term": {"term": 4}})])
    assert not is_served(named, [Part("sequencer", "s", True, "one", status={"term": None})])


def test_anything_that_answers_makes_a_cluster() -> None:
    assert ClusterStatus(bookies=[Part("bookie", "h:1", True)]).anything_up
    assert not ClusterStatus(bookies=[Part("bookie", "h:1", False)]).anything_up
