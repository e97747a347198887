"""`eslurm health` among the other commands, for their help and for callers of the group.

`escli.local.eslurm` answers it without the imports of the others.
"""

from __future__ import annotations

import click

from escli.health import run


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    short_help="Ask a daemon whether it does its duty.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def health(words: tuple[str, ...]) -> int:
    """See `escli.health`."""
    return run(words)
