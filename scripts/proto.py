"""Generates the modules of the wire (proto/eslurm/v1/*.proto -> eslurm/v1/), or checks that they are current.

Invariant: the modules named `*_pb2*` in `eslurm/v1/` are exactly what the locked compiler makes of `proto/`:
none older, none left over.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("eslurm/v1")

_SERVICE = re.compile(r"^\s*service\s+\w+", re.MULTILINE)


class GenerationError(Exception):
    """The .proto files are missing or do not compile."""


def sources(proto: Path) -> list[Path]:
    """All .proto files of the package, relative to `proto`, in order. GenerationError when there are none."""
    found = sorted(path.relative_to(proto) for path in (proto / PACKAGE).glob("*.proto"))
    if not found:
        raise GenerationError(f"no .proto files in {proto / PACKAGE}")
    return found


def generate(proto: Path, out: Path) -> dict[Path, str]:
    """Compiles into `out`, an empty directory; returns the texts by path relative to it.

    Files with a service also get a `_pb2_grpc` module. GenerationError holds the compiler's words.
    """
    every = sources(proto)
    services = [path for path in every if _SERVICE.search((proto / path).read_text(encoding="utf-8"))]
    _compile([f"--proto_path={proto}", f"--python_out={out}", f"--pyi_out={out}", *map(str, every)])
    if services:
        _compile([f"--proto_path={proto}", f"--grpc_python_out={out}", *map(str, services)])
    return present(out)


def present(root: Path) -> dict[Path, str]:
    """The generated modules that are there now, by path relative to `root`."""
    now = (root / PACKAGE).glob("*_pb2*.py*")
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in now}


def differences(wanted: dict[Path, str], found: dict[Path, str]) -> list[str]:
    """One line for each module that is missing, stale or left over."""
    lines = []
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            lines.append(f"{path} is missing")
        elif path not in wanted:
            lines.append(f"{path} is left over: no .proto file makes it")
        elif wanted[path] != found[path]:
            lines.append(f"{path} is stale")
    return lines


def write(wanted: dict[Path, str], root: Path) -> None:
    """Makes the modules under `root` exactly the wanted ones; files already right keep their time stamps."""
    found = present(root)
    for path in found.keys() - wanted.keys():
        (root / path).unlink()
    for path, text in wanted.items():
        if found.get(path) != text:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Generates, or with --check compares; 0, or 1 when they differ or nothing could be generated."""
    parser = argparse.ArgumentParser(prog="proto.py", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail when a module is not current"
    )
    wish = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            wanted = generate(root / "proto", Path(scratch))
    except GenerationError as error:
        sys.stderr.write(f"proto: {error}\n")
        return 1
    changes = differences(wanted, present(root))
    if not wish.check:
        write(wanted, root)
        sys.stdout.write(f"proto: {len(wanted)} modules in {PACKAGE}, {len(changes)} changed\n")
        return 0
    for line in changes:
        sys.stderr.write(f"proto: {line}\n")
    if changes:
        sys.stderr.write("proto: run `make proto` and commit the result\n")
    return 1 if changes else 0


def _compile(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
    done = subprocess.run(  # nosec B603 # fixed words and the files of this repository
        command, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise GenerationError(
            f"the compiler ended with {done.returncode}:\n{done.stdout}{done.stderr}".rstrip()
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
