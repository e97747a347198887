"""The helper that writes a job's routes: whole files, no links followed, plug-ins that raise, hang or end their process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eslurm.core.model.gateways import GatewayStep
from esnoded.task import routes
from esnoded.task.errand import Errand, helper_argv

STEP = GatewayStep(
    "gw1", (("127.0.0.1:7000", "127.0.0.1:7001"),), (("cluster", "cn[1-2]"), ("booster", "bo1"))
)
LINES = [
    "127.0.0.1:7000 cn1 bo1",
    "127.0.0.1:7001 cn2 bo1",
    "127.0.0.1:7000 bo1 cn1",
    "127.0.0.1:7001 bo1 cn2",
]
PLUGINS = {
    "raises": "def f(*_): raise ValueError('no rack\\nof that name')",
    "wrong": "def f(*_): return 9",
    "talks": "def f(*_):\n    print('127.0.0.1:1 evil evil')\n    return 0",
    "ends": "import os\ndef f(*_): os._exit(0)",
    "exits": "import sys\ndef f(*_): sys.exit(0)",
    "broken": "import no_such_module_at_all",
    "hangs": "import time\ndef f(*_):\n    while True: time.sleep(60)",
    "named": "def f(a, b, gateways): return gateways.index('gw1')",
}


def errand(work_dir: Path, **changes: Any) -> Errand:
    made = Errand(17, str(work_dir), "", "plugin1", False, STEP)
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with an installed package of plug-ins."""
    info = tmp_path / "site" / "route_plugins-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: route-plugins\nVersion: 1\n")
    groups: dict[str, list[str]] = {routes.BY_NUMBERS: [], routes.BY_NAMES: []}
    for name, text in PLUGINS.items():
        (info.parent / f"routes_{name}.py").write_text(f"{text}\n")
        group = routes.BY_NAMES if name == "named" else routes.BY_NUMBERS
        groups[group].append(f"{name} = routes_{name}:f")
    text = "\n".join(f"[{group}]\n" + "\n".join(points) for group, points in groups.items())
    (info / "entry_points.txt").write_text(f"{text}\n")
    return info.parent


def start(asked: Errand, site: Path | None = None) -> subprocess.Popen[str]:
    env = {"PATH": "/usr/bin:/bin"} | ({"PYTHONPATH": str(site)} if site is not None else {})
    return subprocess.Popen(
        helper_argv(asked), env=env, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(asked: Errand, site: Path | None = None) -> tuple[int, str, str]:
    process = start(asked, site)
    out, err = process.communicate(timeout=50)
    return process.returncode, out, err


def test_the_routes_are_written_under_their_default_name(tmp_path: Path) -> None:
    assert run(errand(tmp_path)) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["eslurm-route-17"]
    assert (tmp_path / "eslurm-route-17").read_text().splitlines() == LINES


def test_with_cleanup_the_helper_stays_and_removes_its_file_at_the_end(tmp_path: Path) -> None:
    process = start(errand(tmp_path, cleanup=True, file=str(tmp_path / "r")))
    assert process.stdout is not None
    assert process.stdout.readline() == f"{tmp_path}/r\n"
    assert (tmp_path / "r").read_text().splitlines() == LINES
    process.terminate()
    process.communicate(timeout=50)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_taken_the_name_since_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    process = start(errand(tmp_path, cleanup=True, file=str(path)))
    assert process.stdout is not None
    process.stdout.readline()
    (tmp_path / "other").write_text("another job's\n")
    os.rename(tmp_path / "other", path)
    process.terminate()
    process.communicate(timeout=50)
    assert path.read_text() == "another job's\n"


def test_a_link_at_the_name_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious\n")
    (tmp_path / "r").symlink_to(tmp_path / "victim")
    assert run(errand(tmp_path, file=str(tmp_path / "r"))) == (0, "", "")
    assert (tmp_path / "victim").read_text() == "precious\n"
    assert not (tmp_path / "r").is_symlink()
    assert (tmp_path / "r").read_text().splitlines() == LINES


def test_the_error_file_says_why_in_one_line(tmp_path: Path) -> None:
    failed = msgspec.structs.replace(STEP, failed="gateway gw1: daemon ended\nwith \x1b[31m139")
    assert run(errand(tmp_path, step=failed, is_failure=True)) == (0, "", "")
    text = (tmp_path / "JOB-17-gateway.err").read_text()
    assert text == "job 17: its gateways failed: gateway gw1: daemon ended with [31m139\n"


def test_a_directory_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    code, out, err = run(errand(tmp_path / "no"))
    assert (code, out) == (1, "")
    assert err == f"cannot write {tmp_path}/no/eslurm-route-17: no such file or directory\n"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r")
    (tmp_path / "d").mkdir()
    for name in ("r", "d"):
        code, out, err = run(errand(tmp_path, file=str(tmp_path / name)))
        assert (code, out, err) == (1, "", f"cannot write {tmp_path}/{name}: it exists and is no file\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "r"]


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ("raises", "route plug-in 'raises' failed for cn1 and bo1: ValueError: no rack of that name"),
        ("wrong", "route plug-in 'wrong' chose gateway '9' for cn1 and bo1: there are 0..0"),
        ("ends", "the route plug-in ended its process (exit code 0)"),
        ("exits", "the route plug-in failed: SystemExit: 0"),
        ("broken", "route plug-in 'broken' failed: ModuleNotFoundError"),
        ("nothing", "--gateway-plugin: there is no 'nothing': use one of plugin1, plugin2, plugin3, names"),
    ],
)
def test_a_plugin_that_fails_is_one_line_and_leaves_no_file(
    tmp_path: Path, site: Path, plugin: str, words: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    code, out, err = run(errand(work, plugin=plugin), site)
    assert (code, out) == (1, "")
    assert err.startswith(words) and err.count("\n") == 1
    assert list(work.iterdir()) == []


def test_a_plugin_of_the_site_chooses_by_numbers_or_names_and_its_words_are_no_routes(
    tmp_path: Path, site: Path
) -> None:
    for plugin in ("talks", "named"):
        code, out, _ = run(errand(tmp_path, plugin=plugin), site)
        assert (code, out) == (0, "")
        assert (tmp_path / "eslurm-route-17").read_text().splitlines() == LINES


def test_a_plugin_that_hangs_is_ended_with_a_clear_line(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(SystemExit):
        routes._write_within(
            str(tmp_path / "r"), lambda: routes.route_lines(STEP, routes.find_plugin("hangs")), 0.3
        )
    words = "r was not written within 0.3 s: its plug-in or its file system hangs\n"
    assert capfd.readouterr().err == words
    assert not list(tmp_path.glob(".r.*")) and not (tmp_path / "r").exists()
    # The helper ends without it: a process that hangs in a file system cannot be waited for.
    assert os.WTERMSIG(os.wait()[1]) == signal.SIGKILL


def test_an_end_while_the_plugin_hangs_ends_the_helper_at_once(tmp_path: Path, site: Path) -> None:
    process = start(errand(tmp_path, plugin="hangs"), site)
    while not (children := list(tmp_path.glob(".eslurm-route-17.*"))):
        assert process.poll() is None
    process.terminate()
    _, err = process.communicate(timeout=50)
    assert process.returncode == 1
    assert err == "eslurm-route-17 was not written: the helper was ended\n"
    assert not children[0].exists()
