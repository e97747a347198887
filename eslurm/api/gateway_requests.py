"""The request for gateways as the core's value. Malformed ones are refused here, with the option's name."""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.compat.gateways import PLUGIN_DEFAULT, checked_absolute, checked_gateway_env, checked_plugin
from eslurm.core.model.gateways import GatewayRequest
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.request_limits import GATEWAYS_MAX, GATEWAYS_PER_NODE_MAX
from eslurm.v1 import controller_pb2 as pb


def read_gateway(given: pb.GatewayRequest) -> GatewayRequest:
    """The gateways that a job asks for. Raises `Refused`."""
    try:
        return GatewayRequest(
            count=_number("--gateways", given.count, GATEWAYS_MAX),
            plugin=checked_plugin(given.plugin or PLUGIN_DEFAULT),
            file=checked_absolute("--gateway-file", given.file) if given.file else "",
            binary=checked_absolute("--gateway-binary", given.binary) if given.binary else "",
            env=tuple([_variable(entry) for entry in checked_gateway_env(given.env)]),
            per_node=_number("--gateways-per-node", given.per_node or 1, GATEWAYS_PER_NODE_MAX),
            cleanup=given.cleanup,
            quiet=given.quiet,
            debug=given.debug,
            apart=given.apart,
        )
    except OptionError as error:
        raise Refused(RefusalCode.INVALID, str(error)) from None


def _number(option: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise OptionError(option, str(value), f"is not within 1..{most}", f"use e.g. {option} 2")
    return value


def _variable(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name, value
