"""Bounds of random drawing: Hypothesis profiles, and the share of them that each run pays for.

Profile `ci` draws the same examples each time, `dev` new ones, among them constants of the code that a test has loaded;
neither has a deadline, which would turn a busy machine into a failing test. `make test THOROUGH=1` draws everything, for
nights; otherwise tests draw a third.
"""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis.internal.conjecture import providers

SHARE = 3
_EXAMPLES = 100


def draws(count: int) -> int:
    """Examples or seeds to draw here, of a `count` for thorough runs; at least one."""
    return count if os.environ.get("THOROUGH") else -(-count // SHARE)


# A new profile inherits from the one in force, and Hypothesis puts another in force where it detects CI.
_common = settings(
    settings.get_profile("default"), deadline=None, print_blob=True, max_examples=draws(_EXAMPLES)
)
settings.register_profile("ci", _common, derandomize=True, database=None)
settings.register_profile("dev", _common, derandomize=False)


_GETTER = "_get_local_constants"
_of_loaded_modules = getattr(providers, _GETTER)
# Before the first draw: none have been collected yet.
_no_constants = providers._local_constants


def load() -> str:
    """Loads the profile HYPOTHESIS_PROFILE names, else `ci` in CI and `dev` elsewhere; returns its name."""
    name = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
    settings.load_profile(name)
    # Which modules are loaded depends on the tests that the same process ran before: two runs would draw otherwise.
    setattr(providers, _GETTER, (lambda: _no_constants) if name == "ci" else _of_loaded_modules)
    return name
