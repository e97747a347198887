"""The client's side of PMI-1 and PMI-2, as MPI libraries speak it."""

from __future__ import annotations

from collections.abc import Sequence

from escli.user.pmi.program import MpiProgram
from escli.user.pmi.space import MAPPING_KEY
from eslurm.compat.pmi2_messages import frame

INIT1 = b"cmd=init pmi_version=1 pmi_subversion=1\n"
INIT2 = b"cmd=init pmi_version=2 pmi_subversion=0\n"
NAME = "7.0"


def line(text: str) -> bytes:
    """A line of PMI-1."""
    return text.encode() + b"\n"


def message(cmd: str, **words: str) -> bytes:
    """A message of PMI-2."""
    return frame({b"cmd": cmd.encode()} | {name.encode(): value.encode() for name, value in words.items()})


def program(nodes: Sequence[int] = (0, 0, 1)) -> MpiProgram:
    return MpiProgram(NAME, nodes)


def asked(program: MpiProgram, rank: int, *said: bytes) -> dict[int, bytes]:
    """What each rank hears when one has said this."""
    heard: dict[int, bytes] = {}
    for data in said:
        program.take(rank, data)
    for other, data in program.take_answers():
        heard[other] = heard.get(other, b"") + data
    return heard


def put1(key: str, value: str) -> bytes:
    return line(f"cmd=put kvsname={NAME} key={key} value={value}")


def get1(key: str) -> bytes:
    return line(f"cmd=get kvsname={NAME} key={key}")


def session1(rank: int) -> bytes:
    """All that a rank of its own says from its first word to its last, in PMI-1."""
    mapping = MAPPING_KEY.decode()
    words = (
        *("cmd=get_maxes", "cmd=get_appnum", "cmd=get_universe_size", "cmd=get_my_kvsname"),
        f"cmd=get kvsname={NAME} key={mapping}",
    )
    parts = (
        INIT1,
        *map(line, words),
        put1(f"card-{rank}", "a=b"),
        line("cmd=barrier_in"),
        get1(f"card-{rank}"),
    )
    return b"".join((*parts, get1("none"), line("cmd=finalize")))


def session2(rank: int) -> bytes:
    """The same in PMI-2."""
    parts = (
        message("fullinit", pmijobid=NAME, pmirank=str(rank), threaded="FALSE"),
        message("job-getid"),
        message("info-getjobattr", key=MAPPING_KEY.decode()),
        message("info-putnodeattr", key="seg", value="a;b"),
        message("info-getnodeattr", key="seg", wait="TRUE"),
        message("kvs-put", key=f"card-{rank}", value="x;y=z"),
        message("kvs-fence"),
        message("kvs-get", jobid=NAME, srcid="0", key=f"card-{rank}", thrid="77"),
        message("kvs-get", jobid="other", key=f"card-{rank}"),
        message("finalize"),
    )
    return b"".join((INIT2, *parts))
