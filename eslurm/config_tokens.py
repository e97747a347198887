"""What the configuration says of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eslurm.compat.errors import OptionError
from eslurm.core.token.model import SCOPES, TokenRules

if TYPE_CHECKING:
    from eslurm.config import TokensSection

JWT_ALGORITHMS = ("RS256", "ES256", "EdDSA")
JWT_SCOPES = tuple(scope for scope in SCOPES if scope != "estimator")


def token_rules(section: TokensSection) -> TokenRules:
    """What the core decides by."""
    return TokenRules(section.life_user_max_s, section.life_max_s, section.user_max, section.total_max)


def check_tokens(section: TokensSection) -> None:
    """Raise `OptionError` naming the key when the section contradicts itself."""
    jwt = section.jwt
    if not jwt.issuer:
        return
    for key in ("audience", "key_file", "algorithms"):
        if not getattr(jwt, key):
            raise OptionError(
                f"tokens.jwt.{key}", "", "is empty, and an issuer is named", "give it, or no issuer"
            )
    for name in jwt.algorithms:
        if name not in JWT_ALGORITHMS:
            raise OptionError(
                "tokens.jwt.algorithms", name, "is not taken", f"use of {', '.join(JWT_ALGORITHMS)}"
            )
    for key, scope in (
        ("scope", jwt.scope),
        *((f"scopes.{word}", scope) for word, scope in jwt.scopes.items()),
    ):
        if scope not in JWT_SCOPES:
            raise OptionError(
                f"tokens.jwt.{key}", scope, "is no scope", f"use one of {', '.join(JWT_SCOPES)}"
            )
    if jwt.scope_claim and not jwt.scopes:
        raise OptionError(
            "tokens.jwt.scopes", "", "is empty, and scope_claim is named", "say which word means which scope"
        )
