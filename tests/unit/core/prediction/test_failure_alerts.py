"""The book of alerts: sources that are asked, sources that tell, names that are no nodes, and the bounds."""

from __future__ import annotations

from eslurm.core.prediction.alerts import UNKNOWN_REMEMBERED_MAX, AlertPredictor, FiringAlerts
from eslurm.core.prediction.predictor import BroadcastSeen, NodesKnown

NAMES = {number: f"cn{number}" for number in range(10)}


def book(**options: int) -> FiringAlerts:
    made = FiringAlerts(**options)
    made.set_nodes(NAMES)
    return made


def test_a_poll_is_the_whole_truth_of_its_source() -> None:
    alerts = book()
    assert alerts.set_firing("prometheus", [("a", "cn1"), ("b", "cn1"), ("c", "cn2")]) == ()
    assert alerts.nodes(0) == {1, 2}
    alerts.set_firing("prometheus", [("b", "cn1"), ("d", "cn3")])
    assert alerts.nodes(0) == {1, 3} and alerts.counts() == {"prometheus": 2}
    alerts.set_firing("prometheus", [])
    assert alerts.nodes(0) == set()


def test_a_node_has_an_alert_as_long_as_one_fires() -> None:
    alerts = book()
    alerts.change("webhook", [("a", "cn1", 100), ("b", "cn1", 100)])
    alerts.change("webhook", [], ["a", "never fired"])
    assert alerts.nodes(0) == {1}
    alerts.change("webhook", [], ["b"])
    assert alerts.nodes(0) == set()


def test_a_resolved_alert_that_fires_again_in_the_same_message_fires() -> None:
    alerts = book()
    alerts.change("webhook", [("a", "cn1", 100)])
    alerts.change("webhook", [("a", "cn1", 200)], ["a"])
    assert alerts.nodes(150) == {1}


def test_sources_do_not_speak_for_each_other() -> None:
    alerts = book()
    alerts.set_firing("prometheus", [("a", "cn1")])
    alerts.change("webhook", [("a", "cn2", 100)])
    alerts.set_firing("prometheus", [])
    assert alerts.nodes(0) == {2}
    alerts.drop("webhook")
    alerts.drop("nobody")
    assert alerts.nodes(0) == set()


def test_what_was_told_expires_unless_it_is_told_again() -> None:
    alerts = book()
    alerts.change("webhook", [("a", "cn1", 100), ("b", "cn2", 200)])
    assert alerts.nodes(99) == {1, 2} and alerts.nodes(100) == {2}
    alerts.change("webhook", [("b", "cn2", 300)])
    assert alerts.nodes(200) == {2} and alerts.nodes(300) == set()
    assert alerts.counts() == {"webhook": 0}


def test_what_is_asked_for_never_expires() -> None:
    alerts = book()
    alerts.set_firing("prometheus", [("a", "cn1")])
    assert alerts.nodes(1 << 60) == {1}


def test_an_alert_for_no_node_is_ignored_and_said_once() -> None:
    alerts = book()
    messages = alerts.set_firing("prometheus", [("a", "login1"), ("b", "login1"), ("c", "cn1")])
    assert messages == ("prometheus: an alert for 'login1' was ignored: no such node",)
    assert alerts.set_firing("prometheus", [("a", "login1"), ("c", "cn1")]) == ()
    assert alerts.change("webhook", [("a", "login1", 9)]) == ()
    assert alerts.nodes(0) == {1}


def test_after_many_unknown_names_no_more_are_said() -> None:
    alerts = book()
    messages = alerts.set_firing("p", [(str(index), f"x{index}") for index in range(2_000)])
    assert len(messages) == UNKNOWN_REMEMBERED_MAX + 1 and "more than" in messages[-1]
    assert alerts.set_firing("p", [("k", "another")]) == ()


def test_a_new_configuration_drops_alerts_of_former_nodes_and_hears_strangers_anew() -> None:
    alerts = book()
    alerts.set_firing("p", [("a", "cn1"), ("b", "cn2"), ("c", "new")])
    alerts.set_nodes({2: "cn1", 7: "new"})
    assert alerts.nodes(0) == {2}, "by name, not by number"
    assert alerts.set_firing("p", [("a", "cn1"), ("c", "new")]) == () and alerts.nodes(0) == {2, 7}


def test_a_source_has_a_bound_and_says_once_that_it_is_reached() -> None:
    alerts = book(alerts_max=2)
    many = [(str(index), f"cn{index}", 100) for index in range(5)]
    assert alerts.change("w", many) == ("w: more than 2 alerts fire, the rest is ignored",)
    assert alerts.change("w", many) == () and alerts.counts() == {"w": 2}
    assert alerts.change("w", [("0", "cn0", 200)]) == (), "known ones may go on"
    assert alerts.change("w", many) == ("w: more than 2 alerts fire, the rest is ignored",)


def test_the_predictor_asks_the_book_and_tells_it_the_nodes() -> None:
    alerts = FiringAlerts()
    predictor = AlertPredictor(alerts)
    predictor.observe(NodesKnown(NAMES))
    predictor.observe(BroadcastSeen(0, (1,), (1,)))
    alerts.set_firing("p", [("a", "cn4")])
    assert predictor.predict(0) == {4}
    assert predictor.predict(1) is predictor.predict(2), "cheap while nothing changes"
