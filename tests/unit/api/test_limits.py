"""Limits on requests. Method: a clock by hand; how much each gets over a simulated time is counted, never timed."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.api import limits, methods
from eslurm.api.limits import LimitSettings, RequestLimits, Ticket
from eslurm.config.sections import ControllerSection
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Caller, Status
from tests.kits.api import REQUEST_ID

SETTINGS = LimitSettings(
    read_share_percent=10.0,
    read_share_user_percent=5.0,
    read_share_operators_percent=8.0,
    changes_user_per_s=100.0,
    waits_user_max=3,
    calls_user_max=8,
)


def caller(uid: int, via: str = "socket") -> Caller:
    return Caller(Principal(f"user{uid}", uid, uid), REQUEST_ID, False, 1_000_000, via)


class World:
    """Limits under a clock that only the test moves."""

    def __init__(self, settings: LimitSettings = SETTINGS) -> None:
        self.now_s = 1000.0
        self.refused: list[str] = []
        self.limits = RequestLimits(settings, self.refused.append, lambda: self.now_s)

    def admit(self, method: methods.Method, uid: int = 1, *, operator: bool = False) -> Ticket:
        return self.limits.admit(method, caller(uid), operator=operator)

    def read(self, uid: int = 1, cost_s: float = 0.01, *, operator: bool = False) -> ApiError | None:
        """One question that takes so long to answer; the refusal if there is one."""
        try:
            ticket = self.admit(methods.JOBS, uid, operator=operator)
        except ApiError as error:
            return error
        ticket.charge(cost_s - limits.CALL_COST_S)
        ticket.settle(0, cost_s)
        ticket.leave()
        return None

    def refusal(self, method: methods.Method, uid: int = 1) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.admit(method, uid)
        assert caught.value.status is Status.RESOURCE_EXHAUSTED and caught.value.retry_after_s > 0
        return caught.value

    def flood(self, uids: list[int], seconds: float, cost_s: float = 0.002) -> dict[int, float]:
        """All ask without a pause and without patience; the time each was given."""
        given = dict.fromkeys(uids, 0.0)
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            for uid in uids:
                if self.read(uid, cost_s) is None:
                    given[uid] += cost_s
            self.now_s += 0.01
        return given


def test_a_user_gets_its_share_of_the_controller_and_no_more() -> None:
    world = World()
    burst_s = 0.05 * limits.BURST_S
    given = world.flood([1], 100.0)[1]
    assert 0.05 * 100 * 0.95 <= given <= 0.05 * 100 + burst_s + 0.01
    assert set(world.refused) == {"read_share_user"}


def test_all_users_together_get_the_common_share_and_none_less_than_its_part() -> None:
    world = World()
    given = world.flood(list(range(1, 51)), 100.0)
    assert 0.1 * 100 * 0.9 <= sum(given.values()) <= 0.1 * 100 + 0.1 * limits.BURST_S + 0.1
    assert min(given.values()) >= 0.8 * 0.1 * 100 / 50


def test_who_asks_little_is_served_in_the_midst_of_a_flood() -> None:
    world = World()
    world.flood(list(range(1, 51)), 30.0)
    for _ in range(20):
        world.flood(list(range(1, 51)), 1.0)
        assert world.read(999, 0.001) is None


def test_a_refusal_names_the_user_the_limit_and_the_time() -> None:
    world = World()
    assert world.read(7, 1.0) is None
    refusal = world.read(7)
    assert refusal is not None and refusal.status is Status.RESOURCE_EXHAUSTED
    for word in ("user7", "uid 7", "5 %", "controller.read_share_user_percent", "come again in"):
        assert word in refusal.text
    assert limits.RETRY_AFTER_MIN_S <= refusal.retry_after_s <= limits.RETRY_AFTER_MAX_S


def test_who_comes_when_told_is_served_and_those_refused_together_are_told_different_times() -> None:
    world = World()
    world.flood([1], 5.0)
    world.now_s += 1.0
    while world.read(1, 0.02) is None:
        pass
    times = [refusal.retry_after_s for _ in range(5) if (refusal := world.read(1)) is not None]
    assert times == sorted(times) and len(set(times)) == 5
    at = world.now_s
    for after_s in times:
        world.now_s = at + after_s
        assert world.read(1, 0.02) is None


def test_a_call_that_cost_more_than_expected_is_not_held_against_its_user_for_ever() -> None:
    world = World()
    assert world.read(1, 1000.0) is None
    world.now_s += limits.DEBT_S + 1
    assert world.read(1) is None


def test_operators_have_a_share_of_their_own() -> None:
    world = World()
    while world.read(1) is None:
        pass
    given = 0.0
    for _ in range(1000):
        if world.read(0, 0.01, operator=True) is None:
            given += 0.01
        world.now_s += 0.01
    assert 0.08 * 10 <= given <= 0.08 * (10 + limits.BURST_S) + 0.05
    assert "read_share_operators" in world.refused
    while world.read(1) is None:
        pass
    for _ in range(1000):
        world.admit(methods.SUBMIT, 0, operator=True).leave()
    world.admit(methods.DOCTOR, 0, operator=True).leave()


def test_changes_are_counted_however_cheap_they_are() -> None:
    world = World()
    for _ in range(int(100 * limits.BURST_S)):
        world.admit(methods.SUBMIT).leave()
    refusal = world.refusal(methods.SUBMIT)
    assert "100 changes a second" in refusal.text and "changes_user_per_s" in refusal.text
    world.admit(methods.SUBMIT, 2).leave()
    world.now_s += refusal.retry_after_s
    world.admit(methods.SUBMIT).leave()
    assert world.refused == ["changes_user"]


def test_long_polls_need_no_budget_to_begin_and_are_bounded_in_number() -> None:
    world = World()
    assert world.read(1, 5.0) is None
    assert world.read(1) is not None
    tickets = [world.admit(methods.WAIT_JOBS) for _ in range(3)]
    assert "waits_user_max" in world.refusal(methods.WAIT_JOBS).text
    world.admit(methods.WAIT_JOBS, 2).leave()
    tickets[0].leave()
    world.admit(methods.WAIT_JOBS)


def test_what_a_long_poll_costs_while_it_waits_counts_at_once() -> None:
    world = World()
    world.admit(methods.WAIT_JOBS).charge(5.0)
    assert world.read(1) is not None


def test_calls_under_way_are_bounded_per_user() -> None:
    world = World()
    tickets = [world.admit(methods.SUBMIT) for _ in range(8)]
    assert "calls_user_max" in world.refusal(methods.SUBMIT).text
    tickets[0].leave()
    world.admit(methods.SUBMIT)


def test_what_the_store_does_for_accounting_is_charged_too_and_so_are_bytes() -> None:
    for method, size_bytes, took_s in ((methods.ACCOUNTING, 0, 5.0), (methods.JOBS, 1 << 32, 0.0)):
        world = World()
        ticket = world.admit(method)
        ticket.settle(size_bytes, took_s)
        ticket.leave()
        assert world.read(1) is not None
    world = World()
    ticket = world.admit(methods.JOBS)
    ticket.settle(0, 5.0)
    assert world.read(1) is None


@pytest.mark.parametrize("took_s", [0.5, 1.0, 3.0])
def test_what_the_store_does_for_one_keeps_nobody_else_out(took_s: float) -> None:
    """The loop was free meanwhile: who asked for it has to wait, and everybody else is served at once."""
    world = World(msgspec.convert(ControllerSection(), LimitSettings, from_attributes=True))
    ticket = world.admit(methods.ACCOUNTING)
    world.now_s += took_s
    ticket.charge(0.001)
    ticket.settle(10_000, took_s)
    ticket.leave()
    for uid in range(2, 12):
        assert world.read(uid, 0.001) is None
    assert world.read(1, 0.001) is not None


def test_what_the_store_does_for_operators_is_charged_to_them() -> None:
    world = World()
    ticket = world.admit(methods.ACCOUNTING, 0, operator=True)
    ticket.settle(0, 5.0)
    ticket.leave()
    assert world.read(1) is None
    assert world.read(0, operator=True) is not None


def test_nothing_is_limited_where_nothing_is_set() -> None:
    world = World(LimitSettings())
    tickets = [world.admit(method) for method in (methods.JOBS, methods.SUBMIT, methods.WAIT_JOBS)]
    assert not any(ticket.metered for ticket in tickets)
    for _ in range(10_000):
        world.admit(methods.SUBMIT)
        assert world.read(1, 10.0) is None


def test_the_configuration_sets_every_limit_by_its_name() -> None:
    settings = msgspec.convert(ControllerSection(), LimitSettings, from_attributes=True)
    for name in LimitSettings.__struct_fields__:
        assert getattr(settings, name) == getattr(ControllerSection(), name) > 0


def test_users_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USERS_MAX", 10)
    world = World()
    staying = world.admit(methods.WAIT_JOBS, 5)
    for uid in range(100, 200):
        world.admit(methods.JOBS, uid).leave()
    assert len(world.limits._users) == 10 and 5 in world.limits._users
    staying.leave()


def test_changes_are_charged_by_their_time() -> None:
    """Goal: few large changes take no more of the controller than many small ones. Method: one that takes three seconds."""
    world = World(msgspec.structs.replace(SETTINGS, change_share_user_percent=50.0))
    ticket = world.admit(methods.CANCEL)
    assert ticket.metered
    ticket.charge(3.0)
    ticket.leave()
    said = world.refusal(methods.CANCEL)
    assert "changes have taken the 50 % of the controller's time" in said.text
    assert world.refused == ["change_share_user"]
    world.admit(methods.CANCEL, uid=2).leave()
    world.admit(methods.JOBS).leave()
    world.admit(methods.CANCEL, operator=True).leave()
    world.now_s += 2.0
    world.admit(methods.CANCEL).leave()
