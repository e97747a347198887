"""Reading a model's arrays without trust: each is there, of the right kind and shape, and holds finite numbers.

Invariant: what passes here cannot make a prediction raise, loop or read beyond an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eslurm.ports.estimator import Model

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def check_kind(model: Model, kind: str, version: int) -> None:
    """The model is one of this estimator. Raises `ValueError`."""
    found = model.facts.get("kind"), model.facts.get("version")
    if found != (kind, version):
        raise ValueError(
            f"a model of {found[0]!r}, version {found[1]!r}: estimator {kind} needs version {version} of its own"
        )


def floats(arrays: Arrays, name: str, *shape: int | None) -> Floats:
    """An array of finite decimals; None in `shape` is any length. Raises `ValueError`."""
    found = _shaped(arrays, name, shape)
    if found.dtype != np.float64 or not bool(np.isfinite(found).all()):
        raise ValueError(f"the model is damaged: {name} must hold finite decimals")
    return np.ascontiguousarray(found)


def integers(arrays: Arrays, name: str, least: int, most: int, *shape: int | None) -> Integers:
    """An array of whole numbers in a range. Raises `ValueError`."""
    found = _shaped(arrays, name, shape)
    if found.dtype != np.int64 or (found.size and not least <= int(found.min()) <= int(found.max()) <= most):
        raise ValueError(f"the model is damaged: {name} must hold whole numbers from {least} to {most}")
    return np.ascontiguousarray(found)


def hashes(arrays: Arrays, name: str) -> NDArray[np.uint64]:
    """An array of 64-bit hashes. Raises `ValueError`."""
    found = _shaped(arrays, name, (None,))
    if found.dtype != np.uint64:
        raise ValueError(f"the model is damaged: {name} must hold 64-bit hashes")
    return found


def under(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The arrays of a part, by their names in it."""
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


def prefixed(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """A part's arrays, named for the whole."""
    return {prefix + name: value for name, value in arrays.items()}


def _shaped(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    found = arrays.get(name)
    if found is None:
        raise ValueError(f"the model is damaged: it has no {name}")
    fits = found.ndim == len(shape) and all(
        wanted is None or wanted == length for wanted, length in zip(shape, found.shape, strict=True)
    )
    if not fits:
        wanted_text = " x ".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"the model is damaged: {name} has the shape {found.shape}, not {wanted_text}")
    return found
