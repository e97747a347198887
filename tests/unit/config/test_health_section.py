"""`[[agent.health_check]]`: what is refused, and what agents get of it."""

from __future__ import annotations

import pytest

from eslurm.config.health import HealthCheckSection, health_problems, option_of
from eslurm.core.model.node_health import CHECKS_MAX, CheckTerms
from esnoded.health_options import HealthCheck, health_checks


def test_an_agent_reads_what_the_configuration_says() -> None:
    section = HealthCheckSection("disk", "/bin/true", ["-q", "a b'c"], 30, 5, "idle")
    assert health_checks([option_of(section)]) == (
        HealthCheck(CheckTerms("disk", 30, "idle"), ("/bin/true", "-q", "a b'c"), 5),
    )
    assert not list(health_problems([section]))


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ([HealthCheckSection("a b", "/bin/true")], "agent.health_check.name"),
        ([HealthCheckSection("", "/bin/true")], "agent.health_check.name"),
        ([HealthCheckSection("a", "/bin/true")] * 2, "is there twice"),
        ([HealthCheckSection("a", "true")], "is not an absolute path"),
        ([HealthCheckSection("a", "/bin/true", ["\0"])], "zero byte"),
        ([HealthCheckSection(f"c{n}", "/bin/true") for n in range(CHECKS_MAX + 1)], "at most 8"),
    ],
)
def test_checks_that_no_agent_would_take(sections: list[HealthCheckSection], says: str) -> None:
    ((path, problem),) = health_problems(sections)
    assert says in str(problem)
    assert path[:2] == ("agent", "health_check")


def test_a_problem_has_the_place_of_its_own_check() -> None:
    sections = [HealthCheckSection("a", "/bin/true"), HealthCheckSection("b", "true")]
    ((path, _),) = health_problems(sections)
    assert path == ("agent", "health_check", 1, "program")
