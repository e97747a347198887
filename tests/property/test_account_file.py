"""Files of `sacctmgr dump`: a drawn site that is dumped, loaded into an empty one and dumped again is the same text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.compat.slurm import account_file
from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.account_file import Load
from eslurm.compat.slurm.associations import Site
from eslurm.core.model.messages import Changed
from tests.kits.mutation import damaged
from tests.kits.site_policies import SitePolicies

Policy = tuple[str, str, str, list[tuple[str, str]]]

ACCOUNTS = ("a", "b", "c-1", "d.x", "Physics")
QOS = ("normal", "high", "low")
TEXT = st.text(st.sampled_from("ab :=-#,'é"), max_size=8).map(str.strip)


@st.composite
def sites(draw: st.DrawFn) -> list[Policy]:
    """Policies that Slurm has words for, and some that it has not."""
    found: list[Policy] = []
    qos = draw(st.lists(st.sampled_from(QOS), unique=True))
    for number, name in enumerate(qos):
        pairs = [
            ("priority", str(draw(st.integers(0, 9)))),
            ("preempts", ",".join(draw(st.sets(st.sampled_from(qos[:number]))) if number else ())),
            ("preempt_mode", draw(st.sampled_from(("off", "requeue", "cancel", "suspend")))),
            ("preempt_grace", draw(st.sampled_from(("site", "none", "30s", "90m")))),
            ("preempt_exempt", draw(st.sampled_from(("none", "90s", "2h")))),
            ("usage_factor", draw(st.sampled_from(("1", "0.5", "0")))),
            ("time_max", draw(st.sampled_from(("none", "90s", "1d2h")))),
            ("description", draw(TEXT)),
        ]
        found.append(("add", "qos", name, pairs))
        found += draw(limits("qos", name, with_time=False))
    accounts = draw(st.lists(st.sampled_from(ACCOUNTS), unique=True))
    for number, name in enumerate(accounts):
        pairs = [
            ("parent", draw(st.sampled_from(("", *accounts[:number])))),
            ("shares", str(draw(st.integers(1, 5)))),
            ("description", draw(TEXT)),
            ("organization", draw(TEXT)),
        ]
        found.append(("add", "account", name, pairs))
        found += draw(limits("account", name, with_time=False))
    for user in ("ada", "bob") if accounts else ():
        mine = draw(st.lists(st.sampled_from(accounts), unique=True, min_size=1))
        pairs = [
            ("accounts", ",".join(mine)),
            ("qos", ",".join(draw(st.lists(st.sampled_from(qos), unique=True)) if qos else ())),
            ("shares", str(draw(st.integers(1, 5)))),
        ]
        found.append(("add", "user", user, pairs))
        found += draw(limits("user", user, with_time=True))
        if draw(st.booleans()):
            found.append(("modify", "account", draw(st.sampled_from(accounts)), [("coordinators+", user)]))
    return found


@st.composite
def limits(draw: st.DrawFn, kind: str, name: str, *, with_time: bool) -> list[Policy]:
    """Limits on one consumer."""
    found: list[Policy] = []
    for resource in draw(
        st.sets(st.sampled_from(("cores", "memory_mib", "nodes", "gpu", "jobs")), max_size=3)
    ):
        items = str(draw(st.integers(0, 9_999)))
        found.append(
            (
                "add",
                "limit",
                f"{kind}-{name}-{resource}",
                [(kind, name), ("resource", resource), ("items", items)],
            )
        )
    if with_time and draw(st.booleans()):
        pairs = [(kind, name), ("resource", "cores"), ("duration", draw(st.sampled_from(("90s", "2h"))))]
        found.append(("add", "limit", f"{kind}-{name}-time", pairs))
    if draw(st.booleans()):
        found.append(
            ("add", "limit", f"{kind}-{name}-share", [(kind, name), ("resource", "cores"), ("items", "5%")])
        )
    return found


def loaded(text: str, policies: SitePolicies) -> Load:
    """Load a file into a site."""
    load = Load(Site(policies.all()), account_file.parse(text))
    if load.changes:
        answer = policies.change(
            *((one.action, one.kind, one.name, list(one.settings)) for one in load.changes)
        )
        assert isinstance(answer, Changed), answer
    return load


@given(changes=sites())
@settings(deadline=None)
def test_a_dump_loaded_and_dumped_again_is_the_same(changes: list[Policy]) -> None:
    policies = SitePolicies()
    for change in changes:
        assert isinstance(policies.change(change), Changed)
    text = account_file.dump(Site(policies.all()), "alpha")
    assert not loaded(text, policies).changes, "the site is already what its dump says"
    other = SitePolicies()
    load = loaded(text, other)
    assert bool(load.text("alpha")) == bool(load.changes)
    assert account_file.dump(Site(other.all()), "alpha") == text


@given(changes=sites(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_damaged_file_is_read_or_refused(changes: list[Policy], data: st.DataObject) -> None:
    policies = SitePolicies()
    for change in changes:
        policies.change(change)
    text = account_file.dump(Site(policies.all()), "alpha")
    broken = data.draw(damaged([text.encode()])).decode(errors="replace")
    try:
        load = Load(Site(policies.all()), account_file.parse(broken))
    except Unusable as problem:
        assert all(line.strip() for line in problem.lines)
    else:
        assert bool(load.changes) == bool(load.text("alpha"))


def test_a_text_with_both_quotes_is_refused() -> None:
    policies = SitePolicies()
    policies.change(("add", "account", "a", [("description", "a'b\"c")]))
    with pytest.raises(Unusable, match="both kinds of quotes"):
        account_file.dump(Site(policies.all()), "alpha")
