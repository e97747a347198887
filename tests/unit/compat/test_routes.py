"""Routes between modules: the published formulas by hand, plug-ins by names, and plug-ins that choose wrongly."""

from __future__ import annotations

import pytest

from eslurm.compat.filenames import error_file, routes_file
from eslurm.compat.routes import (
    PLUGINS,
    ROUTES_MAX,
    RouteError,
    RoutePlugin,
    nearest_name,
    plugin1,
    plugin2,
    plugin3,
    route_lines,
)
from eslurm.core.model.gateways import GatewayStep

STEP = GatewayStep(
    names="gw[1-2]",
    addresses=(("10.0.0.1:7000", "10.0.0.1:7001"), ("10.0.0.2:7000",)),
    modules=(("cluster", "cn[1-2]"), ("booster", "bo[1-3]")),
)

# Rows are a = 0.., columns b = 0.., as printed with the formulas.
TABLES = {
    "plugin1": (3, ((0, 1, 2, 0), (1, 2, 0, 1), (2, 0, 1, 2))),
    "plugin2": (3, ((0, 1, 2, 0), (1, 1, 2, 0), (1, 2, 2, 0))),
    "plugin3": (3, ((0, 1, 2, 0), (1, 2, 0, 1), (2, 0, 1, 2))),
}


def test_the_formulas_give_the_tables_made_by_hand() -> None:
    formulas = {"plugin1": plugin1, "plugin2": plugin2, "plugin3": plugin3}
    for name, (gateways, table) in TABLES.items():
        size_a, size_b = len(table), len(table[0])
        made = tuple(
            tuple(formulas[name](a, b, size_a, size_b, gateways) for b in range(size_b))
            for a in range(size_a)
        )
        assert made == table, name


def test_the_second_formula_is_b_where_b_is_not_before_a() -> None:
    for a in range(8):
        assert [plugin2(a, b, 8, 8, 4) for b in range(a, 8)] == [b % 4 for b in range(a, 8)]


def test_each_ordered_pair_has_a_line_and_daemons_take_turns() -> None:
    lines = [line.split() for line in route_lines(STEP, PLUGINS["plugin3"])]
    assert len(lines) == 2 * 2 * 3
    assert {(a, b) for _, a, b in lines} == {
        pair for x in ("cn1", "cn2") for y in ("bo1", "bo2", "bo3") for pair in ((x, y), (y, x))
    }
    assert [address for address, _, _ in lines[:6]] == [
        "10.0.0.1:7000",
        "10.0.0.2:7000",
        "10.0.0.1:7001",
        "10.0.0.2:7000",
        "10.0.0.1:7000",
        "10.0.0.2:7000",
    ]


def test_modules_that_reach_each_other_need_no_route() -> None:
    step = GatewayStep(
        "gw1", (("10.0.0.1:7",),), (("cl", "a1"), ("bo", "b1"), ("da", "c1")), (("da", "cl"), ("bo", "da"))
    )
    assert list(route_lines(step, PLUGINS["plugin1"])) == ["10.0.0.1:7 a1 b1\n", "10.0.0.1:7 b1 a1\n"]


def test_names_choose_the_gateway_of_the_rack() -> None:
    gateways = ("r1gw1", "r2gw1", "r2gw2")
    assert nearest_name("r1n07", "x3", gateways) == 0
    assert {nearest_name("r2n07", f"x{number}", gateways) for number in range(4)} == {1, 2}
    assert nearest_name("x1", "y2", gateways) == 0


def _raises(_a: int, _b: int, _size_a: int, _size_b: int, _gateways: int) -> int:
    raise KeyError("no\nsuch rack")


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (RoutePlugin("mine", by_numbers=_raises), "'mine' failed for cn1 and bo1: KeyError"),
        (RoutePlugin("mine", by_numbers=lambda *_: 2), "chose gateway '2' for cn1 and bo1: there are 0..1"),
        (RoutePlugin("mine", by_numbers=lambda *_: -1), "chose gateway '-1'"),
        (RoutePlugin("mine", by_numbers=lambda *_: True), "chose gateway 'True'"),
        (RoutePlugin("mine", by_names=lambda *_: "gw1"), "chose gateway 'gw1'"),  # type: ignore[arg-type,return-value]
    ],
)
def test_a_plugin_that_fails_or_chooses_no_gateway_is_one_line(plugin: RoutePlugin, words: str) -> None:
    with pytest.raises(RouteError, match=words.replace("(", r"\(")):
        list(route_lines(STEP, plugin))


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "10.0.0.1:7\0", "10.0.0.1:7 cn1", "gw1:7", "10.0.0.1:70000", "[fd00::1:7"]
)
def test_an_address_that_is_none_makes_no_line(address: str) -> None:
    step = GatewayStep("gw1", ((address,),), STEP.modules)
    with pytest.raises(RouteError, match="is not ADDRESS:PORT"):
        route_lines(step, PLUGINS["plugin1"])


@pytest.mark.parametrize("names", ["cn1 evil", "cn1\ncn2", "cn[1-"])
def test_a_name_cannot_add_a_line(names: str) -> None:
    step = GatewayStep("gw1", (("10.0.0.1:7",),), (("cl", names), ("bo", "b1")))
    with pytest.raises(RouteError, match="names no nodes"):
        route_lines(step, PLUGINS["plugin1"])


def test_the_number_of_routes_is_bounded_before_any_is_made() -> None:
    step = GatewayStep("gw1", (("10.0.0.1:7",),), (("cl", "a[1-5000]"), ("bo", "b[1-5000]")))
    with pytest.raises(RouteError, match=f"50000000 routes are more than {ROUTES_MAX}"):
        route_lines(step, PLUGINS["plugin1"])


def test_gateways_without_an_address_are_refused() -> None:
    for addresses in ((), (("10.0.0.1:7",),), (("10.0.0.1:7",), ())):
        with pytest.raises(RouteError, match="do not fit 2 gateways"):
            route_lines(GatewayStep("gw[1-2]", addresses, STEP.modules), PLUGINS["plugin1"])


def test_the_files_are_in_the_directory_of_the_job_unless_named() -> None:
    assert routes_file(17, "", "/home/u") == "/home/u/eslurm-route-17"
    assert routes_file(17, "", "/") == "/eslurm-route-17"
    assert routes_file(17, "/tmp/r", "/home/u") == "/tmp/r"
    assert error_file(17, "/home/u/") == "/home/u/JOB-17-gateway.err"
