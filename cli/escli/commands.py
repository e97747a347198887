"""The commands and the modules that hold their `main`: what programs start that run a command without its entry point."""

from __future__ import annotations

MODULES = {
    "eslurm": "escli.eslurm",
    "essubmit": "escli.essubmit",
    "esqueue": "escli.esqueue",
    "escancel": "escli.escancel",
    "esinfo": "escli.esinfo",
    "esacct": "escli.esacct",
    "esctl": "escli.esctl",
    "esrun": "escli.esrun",
    "eswhy": "escli.eswhy",
}
