"""`eslurm import slurm` on damaged and drawn files: what is written loads, and everything else is an answer."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.conf import keys
from eslurm.compat.slurm.conf.associations import convert_dump
from eslurm.compat.slurm.conf.convert import convert
from eslurm.compat.slurm.conf.draft import Draft
from eslurm.compat.slurm.conf.lines import read_lines
from eslurm.compat.toml_text import toml_text
from eslurm.config.file import parse_config
from eslurm.core.model.messages import Changed
from tests.kits.mutation import damaged_texts
from tests.kits.site_policies import SitePolicies

SITE = Path(__file__).parent.parent / "kits" / "slurm_site"
CONF = [(SITE / name).read_text() for name in ("slurm.conf", "conf.d/nodes.conf", "conf.d/partitions.conf")]
NAMES = [
    row.name for table in (keys.GENERAL, keys.NODE, keys.PARTITION, keys.OTHER) for row in table.values()
]
VALUES = st.one_of(
    st.sampled_from(
        (
            "0",
            "1",
            "-1",
            "YES",
            "no",
            "INFINITE",
            "2-0",
            "7-12:00:00",
            "n[1-3]",
            "ALL",
            "n1",
            "gpu:a:2",
            "/bin/true",
            "DEFAULT",
        )
    ),
    st.integers(0, 2**40).map(str),
    st.text(st.sampled_from('ab1,=[]-:/"\\#.%é'), max_size=8),
)


def check(conf: str, topology: str, gres: str) -> None:
    draft = convert(
        list(read_lines("slurm.conf", conf)),
        list(read_lines("topology.conf", topology)),
        list(read_lines("gres.conf", gres)),
    )
    text = toml_text(draft.sections)
    assert tomllib.loads(text) == draft.sections
    parse_config(text.encode(), "made")


@given(
    damaged_texts(CONF),
    damaged_texts(["\n".join(CONF)]),
    damaged_texts([(SITE / "topology.conf").read_text()]),
    damaged_texts([(SITE / "gres.conf").read_text()]),
    st.booleans(),
)
@settings(deadline=None)
def test_damaged_files_make_a_configuration_that_loads(
    part: str, whole: str, topology: str, gres: str, alone: bool
) -> None:
    check(part if alone else whole, topology, gres)


@st.composite
def drawn(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(0, 12))):
        pairs = draw(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), min_size=1, max_size=6))
        lines.append(" ".join(f"{key}={value}" for key, value in pairs))
    return "\n".join(lines)


@given(drawn(), damaged_texts([(SITE / "topology.conf").read_text()]), drawn())
@settings(deadline=None)
def test_drawn_lines_make_a_configuration_that_loads(conf: str, topology: str, gres: str) -> None:
    check(f"NodeName=n[1-4] CPUs=4 RealMemory=100 Gres=gpu:2\n{conf}", topology, gres)


@pytest.fixture(scope="module")
def site() -> SitePolicies:
    return SitePolicies()


@given(text=damaged_texts([(SITE / "alpha.cfg").read_text()]))
@settings(deadline=None)
def test_damaged_dumps_make_policies_that_a_site_takes(site: SitePolicies, text: str) -> None:
    draft = Draft()
    draft.sections["nodes"] = [{"names": "n", "gres": ["gpu:1"]}]
    try:
        found = convert_dump(draft, "dump", text)
    except Unusable:
        return
    written = tomllib.loads(toml_text(found))
    assert written == found
    site.begin()
    changes = [
        (
            "set",
            kind,
            name,
            [
                (key, ",".join(value) if isinstance(value, list) else str(value))
                for key, value in values.items()
            ],
        )
        for kind, named in written.items()
        for name, values in named.items()
    ]
    if changes:
        answer = site.change(*changes)
        assert isinstance(answer, Changed), answer
