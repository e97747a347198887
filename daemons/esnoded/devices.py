"""The GPUs of this host, as NVIDIA's management library (NVML) counts them, where the host has it.

Invariant: nothing that is wrong with a driver or its library keeps an agent from starting: then it says nothing of GPUs,
and the configuration is believed.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

import msgspec

log = logging.getLogger(__name__)


class Gpus(msgspec.Struct, frozen=True):
    """Number and model of the GPUs; different models are joined with a comma."""

    count: int
    model: str


def detect_gpus() -> Gpus | None:
    """The GPUs by NVML; None where it is not installed or fails. Zero GPUs are an answer, too."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        try:
            return _count(nvml)
        finally:
            nvml.nvmlShutdown()
    except Exception as error:
        # The library raises what its driver returns, and its own bugs besides.
        log.warning("the GPUs of this host cannot be counted: %s", error)
        return None


def _count(nvml: Any) -> Gpus:
    count = int(nvml.nvmlDeviceGetCount())
    names = [nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
    # Older versions of the binding give bytes.
    texts = [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names]
    return Gpus(count, ", ".join(dict.fromkeys(texts)))
