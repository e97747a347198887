"""Expressions over node features as `-C` writes them: `a100&(ib|!old)`. `core.model.features` evaluates them."""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.core.model import features


def parse_constraint(text: str, option: str = "--constraint") -> str:
    """The expression, checked and without blanks at its ends. Raises OptionError with the column."""
    try:
        features.parse(text)
    except features.FeatureError as error:
        raise OptionError(option, text, f"{error.why} (column {error.column})", error.way_out) from None
    return text.strip()
