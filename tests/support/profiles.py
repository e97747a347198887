"""Hypothesis profiles: `ci` draws the same examples each time, `dev` new ones; neither has a deadline.

A deadline would turn a busy machine into a failing test; the time limit of the whole test stays.
"""

from __future__ import annotations

import os

from hypothesis import settings

# A new profile inherits from the one in force, and Hypothesis puts another in force where it detects CI.
_common = settings(settings.get_profile("default"), deadline=None, print_blob=True)
settings.register_profile("ci", _common, derandomize=True, database=None)
settings.register_profile("dev", _common, derandomize=False)


def load() -> str:
    """Loads the profile HYPOTHESIS_PROFILE names, else `ci` in CI and `dev` elsewhere; returns its name."""
    name = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
    settings.load_profile(name)
    return name
