"""`make demo`: a whole cluster for a minute, with one real piece of work on it.

Invariant: whatever happens, nothing that it started is left running, and it says so; the exit code is 0 only when the
picture exists and every process is gone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import escli
from escli import exits
from escli.commands import MODULES
from escli.errors import ClusterError
from escli.interrupts import Interrupts
from escli.local import controller, processes
from escli.local.layout import LONGEST_SOCKET, SOCKET_BYTES_MAX, choose, locked
from escli.local.plan import PROGRAMS, Programs
from escli.local.settings import Wishes
from escli.local.start import log_tail
from escli.local.stop import leftovers, stop_all
from escli.local.up import bring_up
from eslurm.compat.hostlist import fold
from eslurm.compat.states import FINAL_STATES, reason_name
from eslurm.core.model.wording import quoted

WISHES = Wishes(nodes=16, cores=1, satellites=2, agents=2, estimator=False, allow_root_jobs=True)
TIMEOUT_S = 300.0
PICTURE = "mandelbrot.png"
WIDTH_PX_MIN, WIDTH_PX_MAX = 32, 8_192
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_POLL_S = 0.2
_COMMAND_TIMEOUT_S = 60.0
_RESULTS = ("tiles/*.tile", "tile-*.out", "join-*.out", PICTURE)


class Progress(msgspec.Struct, frozen=True):
    """State of the two jobs; a block is printed when it differs from the last one."""

    waiting: int
    running: int
    done: int
    failed: int
    nodes: str
    join: str


class Demo:
    """One run. `say` gets the lines of output; without `width_px` the picture has the example's width."""

    def __init__(
        self,
        output: Path,
        programs: Programs,
        interrupts: Interrupts,
        say: Callable[[str], None],
        timeout_s: float = TIMEOUT_S,
        width_px: int | None = None,
    ) -> None:
        self._output = output
        self._size = (
            () if width_px is None else ("--width", f"{width_px}", "--height", f"{width_px * 2 // 3}")
        )
        self._programs = programs
        self._interrupts = interrupts
        self._say = say
        self._timeout_s = timeout_s
        self._began_s = time.monotonic()
        self._example = find_example()
        self._layout = choose(_short_directory(), {})

    def run(self) -> int:
        """1. start 2. submit 3. watch 4. account 5. show the result 6. stop, always. Returns the exit code."""
        code = exits.FAILED
        try:
            self._start()
            tiles, join = self._submit()
            self._watch(tiles, join)
            self._account()
            self._show_picture()
            code = exits.OK
        except ClusterError as error:
            code = error.code
            self._tell_failure(error)
        finally:
            if not self._stop():
                code = exits.FAILED
        if code == exits.OK or code == exits.INTERRUPTED:
            shutil.rmtree(self._layout.directory)
        else:
            self._say(f"What the daemons wrote is kept in {self._layout.directory}.")
        if code == exits.OK:
            self._say(f"Done in {time.monotonic() - self._began_s:.0f} s.")
        return code

    def _start(self) -> None:
        self._say(
            "== A cluster: 1 controller, 2 satellites, 16 virtual nodes in 2 agent processes, SQLite store"
        )
        bring_up(self._layout, WISHES, self._programs, self._interrupts, lambda line: self._say(f"   {line}"))

    def _submit(self) -> tuple[int, int]:
        self._prepare_output()
        self._say("== Work: sixteen tasks compute a band of a picture each, one more job joins them")
        words = ("tiles", *self._size) if self._size else ()
        tiles = self._submitted("--parsable", str(self._example / "tiles.sbatch"), *words)
        dependency = f"--dependency=afterok:{tiles}"
        join = self._submitted("--parsable", dependency, str(self._example / "join.sbatch"))
        return tiles, join

    def _prepare_output(self) -> None:
        try:
            self._output.mkdir(parents=True, exist_ok=True)
            for pattern in _RESULTS:
                for path in self._output.glob(pattern):
                    path.unlink()
        except OSError as error:
            raise ClusterError(f"--output: {self._output} cannot be used: {error}") from None

    def _submitted(self, *arguments: str) -> int:
        text = self._command("essubmit", *arguments).strip()
        self._say(f"   job {text}")
        if not text.isdecimal():
            raise ClusterError(f"essubmit printed {text!r} instead of a job's number")
        return int(text)

    def _command(self, name: str, *arguments: str) -> str:
        """Output of one of the commands, run as a user would run it."""
        shown = [os.path.relpath(word) if os.path.isabs(word) else word for word in arguments]
        self._say(f"   $ {name} {' '.join(shown)}")
        environment = os.environ | {
            "ESLURM_STATE_DIR": str(self._layout.directory),
            "MANDELBROT_HOME": str(self._example),
        }
        environment.pop("ESLURM_SOCKET", None)
        program = f"import sys; from {MODULES[name]} import main; sys.exit(main())"
        try:
            done = subprocess.run(  # nosec B603 # fixed words and paths of the demo
                [sys.executable, "-P", "-c", program, *arguments],
                cwd=self._output,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{name} did not end within {_COMMAND_TIMEOUT_S:g} s") from None
        self._interrupts.check()
        if done.returncode != 0:
            raise ClusterError(f"{name} failed with exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _watch(self, tiles: int, join: int) -> None:
        """Wait until both jobs have ended; print every change. Raises `ClusterError` unless both ended well."""
        deadline_s = time.monotonic() + self._timeout_s
        told = None
        while True:
            infos = self._look(tiles, join)
            progress = progress_of(infos, tiles, join)
            if progress is not None and progress != told:
                told = progress
                self._tell_progress(progress)
            join_info = _find_job(infos, join)
            if join_info is not None and join_info.state in FINAL_STATES:
                if join_info.state != "COMPLETED":
                    raise ClusterError(f"job {join} ended as {join_info.state}")
                return
            if progress is not None and progress.failed:
                raise ClusterError(f"{progress.failed} tasks of job {tiles} failed")
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"the jobs have not ended within {self._timeout_s:g} s", tail=self._outputs()
                )
            self._interrupts.wait((), _POLL_S)

    def _look(self, *jobs: int) -> Sequence[Any]:
        from eslurm.v1 import controller_pb2 as pb

        request = pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id) for job_id in jobs], finished_too=True)
        reply = controller.find_answer(self._layout.socket, "Jobs", request)
        return () if reply is None else list(reply.jobs)

    def _tell_progress(self, progress: Progress) -> None:
        seconds = f"{time.monotonic() - self._began_s:5.1f} s"
        where = f" on {progress.nodes}" if progress.nodes else ""
        failed = f", {progress.failed} failed" if progress.failed else ""
        self._say(
            f"   {seconds}  tiles: {progress.done} done{failed}, {progress.running} running{where}, "
            f"{progress.waiting} waiting"
        )
        self._say(f"   {' ' * len(seconds)}  join:  {progress.join}")

    def _account(self) -> None:
        self._say("== What has run")
        columns = "jobid,jobname,state,exitcode,elapsed,totalcpu,nodelist"
        for line in self._command("esacct", "-o", columns).splitlines():
            self._say(f"   {line}")

    def _show_picture(self) -> None:
        picture = self._output / PICTURE
        try:
            data = picture.read_bytes()
        except OSError as error:
            raise ClusterError(f"{picture}: {error.strerror}") from None
        if not data.startswith(_PNG_MAGIC):
            raise ClusterError(f"{picture} is no PNG picture")
        width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
        self._say(f"== The picture: {picture} ({width} x {height}, {len(data) // 1024} KiB)")

    def _outputs(self) -> list[str]:
        """The last lines of the jobs' outputs."""
        paths = sorted(self._output.glob("*.out"))
        return [f"{path.name}: {line}" for path in paths for line in log_tail(path, 1)][-12:]

    def _tell_failure(self, error: ClusterError) -> None:
        self._say(f"== Failed: {error.text}")
        if error.code == exits.INTERRUPTED:
            return
        words = error.tail or self._outputs()
        for line in words:
            self._say(f"   {line}")
        if words:
            return
        for log in sorted(self._layout.logs.glob("*.log")):
            self._say(f"   -- {log.name}")
            for line in log_tail(log, 6):
                self._say(f"   {line}")

    def _stop(self) -> bool:
        """Stop everything; true when nothing is left."""
        layout = self._layout
        try:
            if layout.find_record() is None:
                return True
            with locked(layout):
                stopped = stop_all(layout, layout.get_record(), hurry=self._interrupts.is_hurried())
            left = leftovers(layout, layout.get_record())
        except ClusterError as error:
            self._say(f"== Stopping failed: {error.text}")
            return False
        if left:
            pids = " ".join(str(identity.pid) for identity in left)
            self._say(f"== Stopped, but processes are left: {pids}; they are killed now")
            processes.end_all(left, 0)
            return False
        self._say(
            f"== Stopped: {stopped.daemons} daemons and {stopped.supervisors} step supervisors ended, nothing is left"
        )
        return True


def progress_of(infos: Sequence[Any], tiles: int, join: int) -> Progress | None:
    """The jobs' state in numbers; None while the controller knows only a part of it."""
    array, last = _find_job(infos, tiles), _find_job(infos, join)
    if array is None or last is None:
        return None
    tasks = [info for info in infos if info.HasField("array_task") and info.array_job_id == tiles]
    nodes = [name for info in tasks if info.state in ("RUNNING", "COMPLETING") for name in _names(info)]
    text = last.state.lower()
    if last.state == "PENDING":
        text = f"waiting ({reason_name(last.reason) if last.reason else 'not looked at yet'})"
    elif last.node_names and last.state not in FINAL_STATES:
        text += f" on {last.node_names}"
    return Progress(
        waiting=_left(array),
        running=array.tasks_running,
        done=array.tasks_done,
        failed=array.tasks_failed,
        nodes=fold(sorted(nodes)) if nodes else "",
        join=text,
    )


def _left(array: Any) -> int:
    """Number of tasks of an array that have not begun."""
    from eslurm.compat.arrays import parse_array

    tasks = array.array_tasks_left.partition("%")[0]
    if not tasks:
        return 0
    ranges, _ = parse_array(tasks, "array")
    return sum(len(range(first, last + 1, step)) for first, last, step in ranges)


def _names(info: Any) -> tuple[str, ...]:
    from eslurm.compat.hostlist import expand

    return expand(info.node_names, "nodes") if info.node_names else ()


def _find_job(infos: Sequence[Any], job_id: int) -> Any:
    """The record of this id itself, not of one of its tasks."""
    return next((info for info in infos if info.job_id == job_id and not info.HasField("array_task")), None)


def find_example() -> Path:
    """examples/mandelbrot of the checkout this code runs from, or of the current directory. Raises `ClusterError`."""
    for root in (_checkout(), Path.cwd()):
        example = root / "examples" / "mandelbrot"
        if (example / "tiles.sbatch").is_file():
            return example
    raise ClusterError("examples/mandelbrot is not here: run the demo in a checkout of eslurm", exits.USAGE)


def _checkout() -> Path:
    return Path(escli.__path__[0]).resolve().parent.parent


def _short_directory() -> str:
    """A new directory whose sockets have short enough names."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) + len("/eslurm-demo-12345678/") + len(LONGEST_SOCKET) > SOCKET_BYTES_MAX:
        base = "/tmp"  # nosec B108 # mkdtemp makes a directory of its own there
    return tempfile.mkdtemp(prefix="eslurm-demo-", dir=base)


def run_demo(output: str | None, width_px: int | None = None) -> int:
    """Run the demo, its lines on standard output; returns the exit code."""
    place = Path(output).absolute() if output else find_example().parent.parent / "build" / "demo"

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with Interrupts() as interrupts:
        return Demo(place, PROGRAMS, interrupts, say, TIMEOUT_S, width_px).run()


def _width(text: str) -> int:
    width_px = int(text) if text.isdecimal() else 0
    if not WIDTH_PX_MIN <= width_px <= WIDTH_PX_MAX:
        raise argparse.ArgumentTypeError(
            f"{quoted(text)} is no width of a picture: write {WIDTH_PX_MIN} to {WIDTH_PX_MAX}"
        )
    return width_px


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m escli.local.demo [--output DIR] [--width PX]`."""
    parser = argparse.ArgumentParser(prog="eslurm demo", description="A whole cluster for a minute.")
    parser.add_argument("--output", metavar="DIR", help="where the picture goes (default: build/demo)")
    parser.add_argument(
        "--width",
        type=_width,
        metavar="PX",
        help=f"of the picture, {WIDTH_PX_MIN} to {WIDTH_PX_MAX}; half of it is done in a quarter of the time (default: 960)",
    )
    words = parser.parse_args(argv)
    try:
        return run_demo(words.output, width_px=words.width)
    except ClusterError as error:
        sys.stderr.write(f"eslurm demo: {error.text}\n")
        return error.code


if __name__ == "__main__":
    sys.exit(main())
