"""Configuration of tokens: the sections, and their translation for the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError
from eslurm.config.values import Count
from eslurm.core.model.token import SCOPES, TokenRules

JWT_ALGORITHMS = ("RS256", "ES256", "EdDSA")
JWT_SCOPES = tuple(scope for scope in SCOPES if scope != "estimator")


class JwtSection(msgspec.Struct, forbid_unknown_fields=True):
    """Tokens (JWT) of the site's own issuer, accepted at the remote API besides those of the cluster. The user is looked
    up on the controller's host; root is refused. Applies at a restart; the keys are read anew when their file changes.
    """

    issuer: str = ""
    """Required claim iss; empty: no such tokens are accepted."""
    audience: str = ""
    """Required claim aud."""
    key_file: str = ""
    """The issuer's public keys, as a JSON Web Key Set or one in PEM, relative to the state directory."""
    algorithms: list[str] = msgspec.field(default_factory=list)
    """Signatures that are taken: RS256, ES256, EdDSA. Each key serves its own only."""
    user_claim: str = "sub"
    """The claim that holds the user's name; often preferred_username."""
    scope_claim: str = ""
    """The claim whose words say the scope; empty: every token has `scope`."""
    scopes: dict[str, str] = msgspec.field(default_factory=dict)
    """Scope of each word of scope_claim; of several the widest counts, with none the token is refused."""
    scope: str = "submit"
    """The scope of all tokens when there is no scope_claim: read, own-jobs, submit or admin."""
    leeway_s: Annotated[float, Meta(ge=0, le=300)] = 30.0
    """Tolerated difference of the issuer's clock, in seconds."""
    life_max_s: Count = 3600
    """Longest life (exp - iat) in seconds of a token that is taken: it cannot be revoked here."""


class TokensSection(msgspec.Struct, forbid_unknown_fields=True):
    """Bounds of the tokens of remote callers (`esctl token`), checked at creation and at each use."""

    life_user_max_s: Count = 604_800
    """Longest life in seconds of a token that users make for themselves."""
    life_max_s: Count = 2_592_000
    """Longest life in seconds of a token that administrators make for others."""
    user_max: Count = 100
    """Most tokens of one user that are good at a time."""
    total_max: Count = 10_000
    """Most tokens of all users that are good at a time."""
    jwt: JwtSection = msgspec.field(default_factory=JwtSection)
    """Tokens of another issuer."""


def token_rules(section: TokensSection) -> TokenRules:
    """The core's part of the section."""
    return TokenRules(section.life_user_max_s, section.life_max_s, section.user_max, section.total_max)


def token_problems(section: TokensSection) -> Iterator[OptionError]:
    """The contradictions within the section, each by its key."""
    jwt = section.jwt
    if not jwt.issuer:
        return
    for key in ("audience", "key_file", "algorithms"):
        if not getattr(jwt, key):
            yield OptionError(
                f"tokens.jwt.{key}", None, "is empty, and an issuer is named", "give it, or no issuer"
            )
    for name in jwt.algorithms:
        if name not in JWT_ALGORITHMS:
            yield OptionError(
                "tokens.jwt.algorithms", name, "is not taken", f"use of {', '.join(JWT_ALGORITHMS)}"
            )
    for key, scope in (
        ("scope", jwt.scope),
        *((f"scopes.{word}", scope) for word, scope in jwt.scopes.items()),
    ):
        if scope not in JWT_SCOPES:
            yield OptionError(
                f"tokens.jwt.{key}", scope, "is no scope", f"use one of {', '.join(JWT_SCOPES)}"
            )
    if jwt.scope_claim and not jwt.scopes:
        yield OptionError(
            "tokens.jwt.scopes",
            None,
            "is empty, and scope_claim is named",
            "say which word means which scope",
        )
