"""Amounts of several resources, as records keep them: one number for each resource, in a fixed order.

`resources.vector` has their arithmetic.
"""

from __future__ import annotations

from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]
"""Cores, memory in MiB, then the resources of the configuration in its order; entries that are not there are zero."""
