"""The files that a configuration names, on the controller's host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eslurm.config.positions import Path
from eslurm.config.sections import Config

PROGRAMS: Final = ("prolog", "epilog", "check", "task_prolog", "task_epilog")
TLS_FILES: Final = ("certificate", "key", "ca")


def named_files(config: Config) -> Iterator[tuple[Path, str]]:
    """The keys with the files that they name. A relative one is in the state directory."""
    jwt, alerts = config.tokens.jwt, config.failure.settings.get("alerts", {})
    named: tuple[tuple[Path, object], ...] = (
        *((("tls", key), getattr(config.tls, key)) for key in TLS_FILES),
        *((("agent", key), getattr(config.agent, key)) for key in PROGRAMS),
        *(
            (("agent", "health_check", at, "program"), one.program)
            for at, one in enumerate(config.agent.health_check)
        ),
        (("phases", "controller_prolog"), config.phases.controller_prolog),
        (("phases", "controller_epilog"), config.phases.controller_epilog),
        (("mail", "program"), config.mail.program),
        (("failure", "settings", "alerts", "webhook_token_file"), alerts.get("webhook_token_file")),
        (("tokens", "jwt", "key_file"), jwt.key_file if jwt.issuer else ""),
        *((("federation", key), getattr(config.federation, key)) for key in (*TLS_FILES, "password_file")),
    )
    for path, file in named:
        if file and isinstance(file, str):
            yield path, file
