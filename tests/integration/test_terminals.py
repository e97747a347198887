"""`esrun --pty`: a task whose terminal is the one in which the command was called."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kits.cluster import LiveCluster
from tests.kits.commands import BIN
from tests.kits.daemons import ROOT, path_of

PATIENCE_S = 20.0
CALL = "import sys; from escli.user.esrun import main; sys.exit(main(sys.argv[1:]))"


class Terminal:
    """A terminal with a command in it, which leads the session of that terminal."""

    def __init__(self, cluster: LiveCluster, *words: str) -> None:
        self.fd, own_fd = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(own_fd)
        called = {
            "ESLURM_SOCKET": str(cluster.socket),
            "PYTHONPATH": path_of(ROOT),
            "TERM": "dumb",
            "PS1": "what now> ",
        }
        self.process = subprocess.Popen(
            ["setsid", "--ctty", BIN / "python", "-P", "-c", CALL, *words],
            cwd=cluster.work,
            env={**os.environ, **called},
            stdin=own_fd,
            stdout=own_fd,
            stderr=own_fd,
        )
        self._own_fd = own_fd
        self.shown = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, text: str) -> str:
        """What is shown up to this text, which counts from the last call on."""
        end_s = time.monotonic() + PATIENCE_S
        while text.encode() not in self.shown:
            assert time.monotonic() < end_s, self.shown
            if select.select([self.fd], [], [], 0.2)[0]:
                self.shown += os.read(self.fd, 65_536)
        found, _, self.shown = self.shown.partition(text.encode())
        return found.decode()

    def ends(self) -> int:
        """The exit code. What is shown is read on: a terminal that nothing reads cannot be put back."""
        end_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s, self.shown
            if select.select([self.fd], [], [], 0.05)[0]:
                self.shown += os.read(self.fd, 65_536)
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._own_fd) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        os.close(self.fd)
        os.close(self._own_fd)


@contextmanager
def terminal(cluster: LiveCluster, *words: str) -> Iterator[Terminal]:
    opened = Terminal(cluster, *words)
    try:
        yield opened
    finally:
        opened.close()
        cluster.wait_idle()


def test_a_shell_on_a_node(cluster: LiveCluster) -> None:
    with terminal(cluster, "--pty", "sh", "-i") as shell:
        # The text is not what is typed, which the terminal shows, too.
        shell.type("echo on $SLURMD_NODENAME; tty; test -w $(tty) && echo its' own'\n")
        shell.until("on cn0001")
        shell.until("/dev/pts/")
        shell.until("its own")
        shell.type("stty size\n")
        shell.until("30 100")
        shell.resize(50, 132)
        os.kill(shell.process.pid, signal.SIGWINCH)
        shell.type("sleep 0.3; stty size; exit 7\n")
        shell.until("50 132")
        assert shell.ends() == 7
        assert shell.is_as_before


def test_keys_go_to_the_task_and_not_to_the_command(cluster: LiveCluster) -> None:
    """Ctrl-C interrupts what runs in the shell, Ctrl-Z stops it, Ctrl-D ends the shell."""
    with terminal(cluster, "--pty", "bash", "--norc", "-i") as shell:
        shell.type("sh -c \"echo rea''dy; exec sleep 600\"\n")
        shell.until("ready")
        shell.type("\x03")
        shell.until("^C")
        shell.until("now> ")
        shell.type("sh -c \"echo go''es on; exec sleep 600\"\n")
        shell.until("goes on")
        shell.type("\x1a")
        shell.until("Stopped")
        shell.until("now> ")
        shell.type("kill -KILL %1; wait %1; echo ki''lled\n")
        shell.until("killed")
        shell.until("now> ")
        shell.type("\x04")
        assert shell.ends() == 0
        assert shell.is_as_before


def test_a_command_that_is_ended_leaves_the_terminal_as_it_was(cluster: LiveCluster) -> None:
    with terminal(cluster, "--pty", "sh", "-c", "echo rea''dy; exec sleep 600") as shell:
        shell.until("ready")
        cluster.until(lambda: not shell.is_as_before, "keys go to the task")
        shell.process.send_signal(signal.SIGTERM)
        assert shell.ends() == 128 + signal.SIGTERM
        assert shell.is_as_before


def test_other_tasks_have_pipes(cluster: LiveCluster) -> None:
    said = 'test -t 0 && echo "terminal of $SLURM_PROCID" || echo "$SLURM_PROCID reads $(wc -c)"'
    with terminal(cluster, "-n", "2", "--pty", "sh", "-c", said) as shell:
        assert shell.ends() == 0
        while select.select([shell.fd], [], [], 0.2)[0]:
            shell.shown += os.read(shell.fd, 65_536)
        assert {"1 reads 0", "terminal of 0"} <= set(shell.shown.decode().splitlines())
