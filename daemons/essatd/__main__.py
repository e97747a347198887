"""The command line of `essatd`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from eslurm.telemetry.process import announce, logging_to_stderr, read_key, run_daemon, stop_on_signals


def main(argv: list[str] | None = None) -> None:
    """Run a satellite until SIGTERM."""
    arguments = _parser().parse_args(argv)
    logging_to_stderr(arguments.log_level)
    from essatd.daemon import Satellite, SatelliteOptions

    options = SatelliteOptions(
        cluster=arguments.cluster,
        name=arguments.name,
        listen=arguments.listen,
        controllers=tuple(endpoint for endpoint in arguments.controllers.split(",") if endpoint),
        key=read_key(arguments.key_file),
    )

    async def body() -> None:
        satellite = Satellite(options)
        stop_on_signals(satellite.stop)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ready.add_done_callback(lambda done: announce(done.result(), arguments.ready_fd))
        await satellite.run(ready)

    run_daemon("essatd", body, arguments.loop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="essatd", description="Satellite of an eslurm cluster.")
    parser.add_argument("--cluster", required=True, help="name of the cluster")
    parser.add_argument("--name", default="satellite", help="what people call this satellite")
    parser.add_argument("--listen", required=True, help="host:port to listen at; port 0 takes any")
    parser.add_argument("--controllers", required=True, help="host:port of the controllers, comma-separated")
    parser.add_argument("--key-file", required=True, type=Path, help="file with the cluster's secret")
    parser.add_argument(
        "--state-dir", type=Path, default=None, help="accepted for uniformity; nothing is kept"
    )
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop")
    parser.add_argument("--log-level", default="info", help="debug, info, warning or error")
    parser.add_argument("--ready-fd", type=int, default=None, help="write the ready line to this descriptor")
    return parser


if __name__ == "__main__":
    main()
