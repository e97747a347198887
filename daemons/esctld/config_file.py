"""The controller's configuration file as the core's messages: what is in force after a start, and what is read again."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from eslurm.config.file import cluster_config, config_digest, read_config, with_own_uid
from eslurm.config.sections import Config
from eslurm.core.model.config import ClusterConfig


class Loaded(msgspec.Struct, frozen=True):
    """A checked file. `core` is for this process's user, `digest` the same for all controllers that have this file."""

    file: Config
    core: ClusterConfig
    digest: bytes


def loaded(file: Config) -> Loaded:
    """The core's part of a file that was read. Raises `ConfigError`."""
    config = cluster_config(file)
    return Loaded(file, with_own_uid(config, file, os.geteuid()), config_digest(config))


def load(path: Path) -> Loaded:
    """Read and check the whole file, which takes a second for ten thousands of nodes: not on the event loop.

    Raises `ConfigError`, also for a file that another user could change.
    """
    return loaded(read_config(path, is_obeyed=True))
