"""Checks of a step runner's input: one of a `StepSpec`, and those of the numbers of other requests.

The supervisor checks before it accepts a step, and the process that becomes a task before it acts. Each function returns
the problem, naming the field and the value, or an empty text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eslurm.core.model.step_key import ROUTE_ERROR_STEP
from eslurm.core.model.values import COOKIE_BYTES, id_problem, signal_problem, text_problem, umask_problem
from eslurm.ports.step_runner import OutputEndpoint, StepSpec, StepWarning

TASKS_MAX = 4_096
GROUPS_MAX = 65_536
DURATION_US_MAX = 2**53
"""285 years: sums of such durations and a present time fit into 64 bits."""
_NUMBER_MAX = 2**53


def spec_problem(spec: StepSpec) -> str:
    """The reason why no runner starts this step."""
    return next(filter(None, _spec_problems(spec)), "")


def duration_problem(name: str, duration_us: int) -> str:
    """Check a duration in microseconds."""
    if 0 <= duration_us <= DURATION_US_MAX:
        return ""
    return f"{name}: {duration_us} us is not within 0..{DURATION_US_MAX}"


def endpoint_problem(endpoint: OutputEndpoint) -> str:
    """Check a numeric address of one host, a port, and a cookie that can be a key."""
    if not 1 <= endpoint.port <= 65_535:
        return f"endpoint: port {endpoint.port} is not within 1..65535"
    if len(endpoint.cookie) != COOKIE_BYTES:
        return f"endpoint: the cookie has {len(endpoint.cookie)} bytes instead of {COOKIE_BYTES}"
    try:
        parse_address(endpoint.host)
    except ValueError as error:
        return f"endpoint: {error}"
    return ""


def parse_address(text: str) -> str:
    """The address of one host in the kernel's form. Raises ValueError for names, paths, scopes, and addresses of many
    hosts.
    """
    # Not at the top: most supervisors never see an endpoint, and this is a fiftieth of their memory.
    import ipaddress

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text[:64]!r} is not a numeric address: give e.g. 10.1.0.5") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f"{text!r} has a scope, which means something on one host only: leave out the %")
        if address.ipv4_mapped is not None:
            raise ValueError(f"{text!r} is an IPv4 address: write it as {address.ipv4_mapped}")
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        raise ValueError(f"{text!r} is not the address of one host")
    return str(address)


def parse_endpoint(text: str) -> tuple[str, int]:
    """(address, port) of `10.1.0.5:4711` or `[fd00::5]:4711`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5:
        raise ValueError(f"{text[:64]!r} is not ADDRESS:PORT: give e.g. 10.1.0.5:4711")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{text[:64]!r} is not ADDRESS:PORT: write an IPv6 address in brackets")
    if not 1 <= int(port) <= 65_535:
        raise ValueError(f"{text[:64]!r}: port {port} is not within 1..65535")
    return parse_address(host.removeprefix("[").removesuffix("]")), int(port)


def _spec_problems(spec: StepSpec) -> Iterator[str]:
    yield _key_problem(spec)
    if not spec.argv:
        yield "argv: it is empty: a step needs a program"
    least = 0 if spec.key.is_batch else 1
    if not least <= spec.tasks <= TASKS_MAX:
        yield f"tasks: {spec.tasks} is not within {least}..{TASKS_MAX}"
    if not 0 <= spec.first_task <= _NUMBER_MAX:
        yield f"first_task: {spec.first_task} is not within 0..{_NUMBER_MAX}"
    yield from _ids_problems(spec)
    yield _named("umask", umask_problem(spec.umask))
    yield from _texts_problems(spec)
    for name in ("time_limit_us", "kill_grace_us", "orphan_timeout_us"):
        yield duration_problem(name, getattr(spec, name))
    if spec.warning is not None:
        yield from _warning_problems(spec.warning)
    if spec.endpoint is not None:
        yield endpoint_problem(spec.endpoint)


def _key_problem(spec: StepSpec) -> str:
    key = spec.key
    for name in ("job_id", "attempt", "step", "node"):
        number, least = getattr(key, name), ROUTE_ERROR_STEP if name == "step" else -1
        if not least <= number <= _NUMBER_MAX:
            return f"key: {name} {number} is not within {least}..{_NUMBER_MAX}"
    return ""


def _ids_problems(spec: StepSpec) -> Iterator[str]:
    yield _named("uid", id_problem(spec.uid))
    yield _named("gid", id_problem(spec.gid))
    if len(spec.groups) > GROUPS_MAX:
        yield f"groups: {len(spec.groups)} are more than {GROUPS_MAX}"
    for group in spec.groups:
        yield _named("groups", id_problem(group))


def _texts_problems(spec: StepSpec) -> Iterator[str]:
    yield _named("node_name", text_problem(spec.node_name))
    for argument in spec.argv:
        yield _named("argv", text_problem(argument))
    if not spec.cwd.startswith("/"):
        yield f"cwd: {spec.cwd[:64]!r} is not an absolute path"
    for name in ("cwd", "stdin", "stdout", "stderr"):
        yield _named(name, text_problem(getattr(spec, name)))
    yield _environment_problem(spec.env)


def _environment_problem(variables: dict[str, str]) -> str:
    # All of them at once: an environment has a hundred.
    names, values = "".join(variables), "".join(variables.values())
    if "" in variables or "=" in names:
        return "env: a variable's name is empty or contains '='"
    return _named("env", text_problem(names) or text_problem(values))


def _warning_problems(warning: StepWarning) -> Iterable[str]:
    yield duration_problem("warning.before_us", warning.before_us)
    if warning.signum:
        yield _named("warning.signum", signal_problem(warning.signum))
    yield _named("warning.script", text_problem(warning.script))


def _named(field: str, problem: str) -> str:
    return f"{field}: {problem}" if problem else ""
