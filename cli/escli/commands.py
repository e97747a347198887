"""The commands and the modules that hold their `main`: what programs start that run a command without its entry point."""

from __future__ import annotations

MODULES = {
    "eslurm": "escli.local.eslurm",
    "essubmit": "escli.user.essubmit",
    "esqueue": "escli.user.esqueue",
    "escancel": "escli.user.escancel",
    "esinfo": "escli.user.esinfo",
    "esacct": "escli.user.esacct",
    "esctl": "escli.admin.esctl",
    "esrun": "escli.user.esrun",
    "eswhy": "escli.user.eswhy",
}
