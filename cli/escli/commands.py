"""The commands and the modules of their `main`, for programs that start a command without its entry point."""

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
    "eswait": "escli.user.eswait",
    "esalloc": "escli.user.esalloc",
    "esattach": "escli.user.esattach",
    "eswhy": "escli.user.eswhy",
}
