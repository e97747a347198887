"""Tokens in the core: who may have which made, their bounds, their end, and what a scope leaves of somebody's rights."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.timers import drop_stale, next_timer_us
from eslurm.core.model import facts
from eslurm.core.model.accounts import Account, kind_of
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    ChangePolicies,
    CreateToken,
    JobRef,
    PolicyChange,
    RefusalCode,
    Refused,
    RevokeTokens,
    SetForecasts,
    Tick,
    TokenMade,
    UpdateNodes,
)
from eslurm.core.model.token import TokenRules
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World

DAY = 86_400
RULES = TokenRules(life_user_max_s=7 * DAY, life_max_s=30 * DAY, user_max=3, total_max=5)


def create(
    number: int,
    by: Principal = ALICE,
    of: Principal = ALICE,
    scope: str = "submit",
    life_s: int = 3600,
) -> CreateToken:
    return CreateToken(by, of, number.to_bytes(16), scope, life_s)


def world(**config: object) -> World:
    return World(nodes=1, **{"tokens": RULES, **config})  # type: ignore[arg-type]


def ids(one: World) -> list[int]:
    return sorted(int.from_bytes(identifier) for identifier in one.state.tokens)


def test_what_is_made_is_remembered_and_ends_by_itself() -> None:
    one = world()
    made = one.send(create(1))
    assert made == TokenMade(b"\0" * 15 + b"\1", ALICE, "submit", one.now_us, one.now_us + 3600 * SECOND)
    assert isinstance(one.send(create(2, life_s=60)), TokenMade)
    one.restart()
    assert ids(one) == [1, 2]
    assert (due_us := next_timer_us(one.state)) is not None
    one.now_us += 60 * SECOND
    assert due_us == one.now_us
    one.send(Tick())
    assert ids(one) == [1]
    one.now_us += 3600 * SECOND
    drop_stale(one.state)
    one.send(Tick())
    assert ids(one) == []
    assert [type(fact) for fact in one.log if isinstance(fact, facts.TokensExpired)] == [
        facts.TokensExpired
    ] * 2


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (create(1, ROOT, ROOT), RefusalCode.DENIED, "root gets no token: its bearer would be root"),
        (create(1, ROOT, Principal("toor", 0, 5)), RefusalCode.DENIED, "toor gets no token"),
        (
            create(1, ALICE, BOB),
            RefusalCode.DENIED,
            "alice is no administrator: only they have tokens made for others",
        ),
        (
            create(1, scope="root"),
            RefusalCode.INVALID,
            "scope: 'root' does not exist: use one of read, own-jobs",
        ),
        (create(1, scope=""), RefusalCode.INVALID, "scope: an empty value does not exist"),
        (create(1, scope="estimator"), RefusalCode.DENIED, "only they make tokens for estimators"),
        (create(1, life_s=0), RefusalCode.INVALID, "not within 1..604800 s (tokens.life_user_max_s)"),
        (create(1, life_s=-1), RefusalCode.INVALID, "a life of -1 s"),
        (create(1, life_s=7 * DAY + 1), RefusalCode.INVALID, "not within 1..604800 s"),
        (create(1, ROOT, BOB, life_s=30 * DAY + 1), RefusalCode.INVALID, "1..2592000 s (tokens.life_max_s)"),
        (create(1, replace(ALICE, via="token", scope="admin")), RefusalCode.DENIED, "not made with a token"),
        (create(1, replace(ALICE, via="agent")), RefusalCode.DENIED, "not made on nodes"),
        (
            create(1, replace(ALICE, via="login"), scope="admin"),
            RefusalCode.DENIED,
            "scope admin is not given through a login host",
        ),
        (create(1, replace(ROOT, via="login"), BOB), RefusalCode.DENIED, "root is no administrator"),
        (CreateToken(ALICE, ALICE, b"short", "read", 5), RefusalCode.INTERNAL, "cannot be used"),
    ],
)
def test_who_gets_none(message: CreateToken, code: RefusalCode, text: str) -> None:
    one = world()
    refused = one.send(message)
    assert isinstance(refused, Refused) and refused.code is code and text in refused.text
    assert one.state.tokens == {}


def test_who_gets_one() -> None:
    one = world()
    for at, message in enumerate(
        (
            create(1, scope="admin", life_s=7 * DAY),
            create(2, replace(ALICE, via="login")),
            create(3, ROOT, BOB, life_s=30 * DAY),
            create(4, ROOT, BOB, scope="estimator"),
        ),
        1,
    ):
        assert isinstance(one.send(message), TokenMade)
        assert len(one.state.tokens) == at


def test_the_number_of_tokens_is_bounded_for_each_and_for_all() -> None:
    one = world()
    for number in (1, 2, 3):
        one.send(create(number))
    refused = one.send(create(4))
    assert isinstance(refused, Refused) and refused.code is RefusalCode.EXHAUSTED
    assert refused.text == "alice has 3 tokens, 3 are possible (tokens.user_max): revoke one"
    for number in (4, 5):
        one.send(create(number, BOB, BOB))
    refused = one.send(create(6, BOB, BOB))
    assert isinstance(refused, Refused) and "the cluster has 5 tokens" in refused.text
    one.send(RevokeTokens(ALICE, (bytes(15) + b"\1",)))
    assert isinstance(one.send(create(6)), TokenMade)
    same = one.send(create(5))
    assert isinstance(same, Refused)


def test_taking_back() -> None:
    one = world()
    for number, who in ((1, ALICE), (2, ALICE), (3, BOB), (4, BOB)):
        one.send(create(number, who, who))
    first, third = bytes(15) + b"\1", bytes(15) + b"\3"
    changed = one.send(RevokeTokens(ALICE, (first, third, first, b"nothing")))
    assert isinstance(changed, Changed) and changed.count == 1
    # Others' tokens are as unknown as those that there are not.
    assert {(problem.code, problem.text) for problem in changed.problems} == {
        (RefusalCode.NOT_FOUND, "there is no such token (any more): see esctl token list")
    }
    assert ids(one) == [2, 3, 4]
    for by in (ALICE, replace(ROOT, via="login"), replace(ROOT, via="token", scope="submit")):
        refused = one.send(RevokeTokens(by, user="bob"))
        assert isinstance(refused, Refused) and refused.code is RefusalCode.DENIED
    # An account that has taken a name over has not got its tokens.
    assert one.send(RevokeTokens(replace(BOB, uid=1002), user="bob")) == Changed(0)
    assert one.send(RevokeTokens(ALICE, user="alice")) == Changed(1)
    assert one.send(RevokeTokens(ROOT, user="bob")) == Changed(2)
    assert ids(one) == []
    one.now_us += 3600 * SECOND
    one.send(Tick())
    assert not [fact for fact in one.log if isinstance(fact, facts.TokensExpired)]
    refused = one.send(RevokeTokens(ROOT, tuple(number.to_bytes(16) for number in range(1001))))
    assert isinstance(refused, Refused) and "1001 tokens at once are more than 1000" in refused.text


@pytest.mark.parametrize("scope", ["read", "own-jobs", "submit", "estimator"])
def test_a_limited_token_has_no_rights_over_others(scope: str) -> None:
    one = world()
    job_id = one.submit(user=BOB)
    root = replace(ROOT, via="token", scope=scope)
    changed = one.send(CancelJobs(root, (JobRef(job_id),)))
    assert isinstance(changed, Changed) and changed.problems[0].code is RefusalCode.DENIED
    account = Account("physics")
    for message in (
        UpdateNodes(root, ("cn0",), "drain", "x"),
        ChangePolicies(root, (PolicyChange("add", kind_of(account), account.name, account),)),
    ):
        refused = one.send(message)
        assert isinstance(refused, Refused) and refused.code is RefusalCode.DENIED
    admin = replace(root, scope="admin")
    assert isinstance(one.send(UpdateNodes(admin, ("cn0",), "drain", "x")), Changed)


def test_an_estimators_token_is_enough_to_say_how_long_jobs_run() -> None:
    one = world()
    job_id = one.submit()
    said = ((job_id, Forecast(1, 2, 3, 2)),)
    for by, works in (
        (replace(BOB, via="token", scope="estimator"), True),
        (replace(BOB, via="token", scope="submit"), False),
        (replace(BOB, via="token", scope="admin"), False),
    ):
        answer = one.send(SetForecasts(by, said))
        assert isinstance(answer, Changed if works else Refused)
