"""The section [tokens]: bounds, and an issuer of the site."""

from __future__ import annotations

import pytest

from eslurm.config.file import cluster_config, parse_config
from eslurm.config.problems import ConfigError
from eslurm.core.model.token import TokenRules

SITE = '[cluster]\nname = "lab"\n[[nodes]]\nnames = "cn1"\ncores = 8\nmemory_mib = 1000\n'
JWT = '[tokens.jwt]\nissuer = "i"\naudience = "a"\nkey_file = "k"\nalgorithms = ["RS256"]\n'


def test_bounds_are_the_cores() -> None:
    for text, rules in (
        ("", TokenRules()),
        (
            "[tokens]\nlife_user_max_s = 5\nlife_max_s = 6\nuser_max = 7\ntotal_max = 8\n",
            TokenRules(5, 6, 7, 8),
        ),
    ):
        assert cluster_config(parse_config((SITE + text).encode(), "site.toml")).tokens == rules


def test_an_issuer() -> None:
    text = JWT + 'scope_claim = "s"\nscopes = { w = "admin" }\n'
    found = parse_config((SITE + text).encode(), "site.toml").tokens.jwt
    assert (found.issuer, found.scopes, found.life_max_s, found.user_claim) == (
        "i",
        {"w": "admin"},
        3600,
        "sub",
    )
    assert not parse_config(SITE.encode(), "site.toml").tokens.jwt.issuer


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tokens]\nlife_user_max_s = 0\n", "tokens.life_user_max_s"),
        ("[tokens]\nlive_max_s = 1\n", "live_max_s"),
        (JWT.replace('"a"', '""'), "tokens.jwt.audience"),
        (JWT.replace('"k"', '""'), "tokens.jwt.key_file"),
        (JWT.replace('["RS256"]', "[]"), "tokens.jwt.algorithms"),
        (JWT.replace('["RS256"]', '["none"]'), "tokens.jwt.algorithms: 'none' is not taken: use of RS256"),
        (JWT.replace('["RS256"]', '["RS256", "HS256"]'), "tokens.jwt.algorithms: 'HS256' is not taken"),
        (JWT + 'scope = "estimator"\n', "tokens.jwt.scope: 'estimator' is no scope"),
        (JWT + 'scope_claim = "s"\n', "tokens.jwt.scopes is empty"),
        (JWT + 'scope_claim = "s"\nscopes = { w = "root" }\n', "tokens.jwt.scopes.w: 'root' is no scope"),
        (JWT + "leeway_s = 301\n", "leeway_s"),
    ],
)
def test_what_cannot_be(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config((SITE + text).encode(), "site.toml")
    assert told in str(refused.value).replace("$.", "")
