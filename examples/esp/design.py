"""Runs the factorial design of the paper's experiment on `eslurm simulate esp`: two applications, four techniques,
cooperation off and on.

Results go to a JSON file, in which runs that are there already are not done again, and a table to standard output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

APPLICATIONS = ("mandelbrot", "psia")
TECHNIQUES = ("STATIC", "FAC", "GSS", "AF")
LEVELS = ("off", "full")


def main(argv: Sequence[str]) -> int:
    """Run what is missing, print the table; 0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="design.py", description="Runs ESP's factorial design.")
    parser.add_argument("-o", "--output", type=Path, default=Path("esp.json"), help="default: %(default)s")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw each Mandelbrot run under STATIC")
    parser.add_argument(
        "--seed", type=int, action="append", help="orders of the jobs (default: that of eslurm)"
    )
    parser.add_argument("--eslurm", default="eslurm", help="the command (default: %(default)s)")
    parser.add_argument("options", nargs="*", metavar="OPTION", help="more options of eslurm, after --")
    wish = parser.parse_args(argv)
    found: dict[str, Any] = json.loads(wish.output.read_text()) if wish.output.exists() else {}
    for seed in wish.seed or [None]:
        for application in APPLICATIONS:
            for technique in TECHNIQUES:
                for level in LEVELS:
                    key = " ".join(
                        [application, technique, level, *([f"seed {seed}"] if seed is not None else [])]
                    )
                    if key in found:
                        continue
                    words = [
                        wish.eslurm,
                        "simulate",
                        "esp",
                        "--application",
                        application,
                        "--technique",
                        technique,
                    ]
                    words += ["--cooperate", level, "--json", *wish.options]
                    if seed is not None:
                        words += ["--seed", str(seed)]
                    if wish.pictures and (application, technique) == ("mandelbrot", "STATIC"):
                        words += ["--picture", str(wish.pictures / f"cooperation-{level}.png")]
                    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
                    if done.returncode:
                        print(f"design: {' '.join(words)} ended with {done.returncode}", file=sys.stderr)
                        return 1
                    found[key] = json.loads(done.stdout)["runs"][0]
                    wish.output.write_text(json.dumps(found, indent=1) + "\n")
    print("| run | makespan, s | utilisation | mean wait, s | digest |\n|---|---|---|---|---|")
    for key, run in found.items():
        figures = f"{run['makespan_s']:,.0f} | {run['utilisation']:.2%} | {run['wait_mean_s']:,.0f}"
        print(f"| {key} | {figures} | `{run['digest'][:8]}` |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
