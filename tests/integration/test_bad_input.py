"""Users' mistakes: refused in one line that names the option and the way out, with nothing stored; or, where
only the node can know, the job's own failure with a clear text in accounting.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.kits.cluster import LiveCluster

# (words after essubmit, exit code, what the one line has to name)
REFUSED = [
    (["-N", "17", "--wrap", "true"], 1, ["--nodes", "16"]),
    (["-c", "5", "--wrap", "true"], 1, ["--cpus-per-task", "4"]),
    (["-n", "65", "--wrap", "true"], 1, ["--ntasks"]),
    (["--mem", "5G", "--wrap", "true"], 1, ["--mem"]),
    (["-w", "cn0099", "--wrap", "true"], 1, ["--nodelist", "cn0099"]),
    (["-p", "nowhere", "--wrap", "true"], 1, ["--partition", "nowhere", "main"]),
    (["-p", "brief", "-N", "2", "--wrap", "true"], 1, ["--nodes", "brief"]),
    (["-p", "brief", "-t", "2:00:00", "--wrap", "true"], 1, ["--time"]),
    (["-d", "afterok:99999", "--wrap", "true"], 1, ["--dependency", "99999"]),
    (["-x", "cn[0001-0016]", "--wrap", "true"], 1, ["--exclude"]),
    (["-N", "many", "--wrap", "true"], 2, ["-N", "many"]),
    (["-t", "soon", "--wrap", "true"], 2, ["-t", "soon"]),
    (["-d", "afterok:x", "--wrap", "true"], 2, ["-d", "x"]),
    (["--array", "5-1", "--wrap", "true"], 2, ["--array", "5-1"]),
    (["--begin", "yesterday-ish", "--wrap", "true"], 2, ["--begin"]),
    (["--frobnicate", "--wrap", "true"], 2, ["--frobnicate"]),
    (["--gres", "gpu:1", "--wrap", "true"], 1, ["--gres", "gpu"]),
    (["missing.sh"], 2, ["missing.sh"]),
]


def revision(cluster: LiveCluster) -> int:
    return int(cluster.call("Ping", pb.PingRequest()).revision)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    REFUSED,
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else None,
)
def test_a_request_that_cannot_be_is_refused_in_one_line(
    cluster: LiveCluster, words: list[str], code: int, named: list[str]
) -> None:
    def is_nothing_stored() -> bool:
        before = revision(cluster)
        ran = cluster.run("essubmit", *words)
        assert (ran.code, ran.out) == (code, "")
        assert ran.err.count("\n") == 1
        assert [word for word in named if word not in ran.err] == []
        return revision(cluster) == before

    # Now and then the controller itself has something to store meanwhile; a refusal that did so would each time.
    cluster.until(is_nothing_stored, "a refusal stores nothing")


@pytest.mark.parametrize(
    "text", [b"", b"echo no interpreter\n", b"#!/bin/sh\n\0\n", b"#!/bin/sh\n" + b"x" * (5 << 20)]
)
def test_a_script_that_is_none_is_refused(cluster: LiveCluster, text: bytes) -> None:
    path = cluster.work / "script"
    path.write_bytes(text)
    ran = cluster.run("essubmit", str(path))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert str(path) in ran.err


def _failure(cluster: LiveCluster, job_id: int) -> str:
    """The text by which accounting explains the failure of a job whose script could not run."""
    run = cluster.only_run(job_id)
    assert run.state == "FAILED" and run.attempt == 1
    assert (run.exit_code, run.exit_signal) != (0, 0)
    return str(run.exit_text)


def test_a_missing_working_directory_is_the_jobs_failure(cluster: LiveCluster) -> None:
    ran = cluster.run("essubmit", "--parsable", "-D", "/no/such/place", "-o", "/dev/null", "--wrap", "true")
    assert "/no/such/place" in _failure(cluster, int(ran.out))


def test_a_missing_output_directory_is_the_jobs_failure(cluster: LiveCluster) -> None:
    assert "no/such/out" in _failure(cluster, cluster.wrap("true", "-o", "no/such/out"))


def test_a_missing_input_is_the_jobs_failure(cluster: LiveCluster) -> None:
    assert "not.there" in _failure(cluster, cluster.wrap("cat", "-i", "not.there"))


def test_a_bad_interpreter_is_the_jobs_failure(cluster: LiveCluster) -> None:
    script = cluster.script("odd", "#!/no/such/interpreter\necho x\n")
    assert "interpreter" in _failure(cluster, cluster.submit(script))


def test_a_failed_setup_is_seen_by_those_who_ask_for_the_reason(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("true", "-o", "no/such/out")
    cluster.end(job_id)
    ran = cluster.run("esacct", "-j", str(job_id), "-P", "-h", "-o", "state,reason")
    assert ran.out.startswith("FAILED|") and "no/such/out" in ran.out


def test_other_peoples_mistakes_with_changes_are_told_one_by_one(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("true", "--hold")
    ran = cluster.run("escancel", str(job_id), "99999")
    assert ran.code == 1 and "99999" in ran.err
    assert cluster.end(job_id) == "CANCELLED"
    assert cluster.run("esctl", "drain", "cn0001").code == 2
    assert cluster.run("esctl", "drain", "cn0099", "reason=x").code == 1
    assert cluster.run("esctl", "update", "job", "99999", "time=5").code == 1


def test_a_socket_that_is_not_there_is_said_so(cluster: LiveCluster, tmp_path: Path) -> None:
    ran = cluster.run("esqueue", "--socket", str(tmp_path / "absent"))
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert str(tmp_path / "absent") in ran.err
