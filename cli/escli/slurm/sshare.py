"""`sshare`: shares and usage of accounts and users."""

from __future__ import annotations

import sys

from escli import exits
from escli.slurm import frame
from eslurm.compat.slurm import fitted
from eslurm.compat.slurm.small_options import SHARE_DEFAULT, SHARE_LONG, SHARE_WIDTHS, SSHARE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options


ROWS = SSHARE


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    from eslurm.v1 import controller_pb2 as pb

    if given.has("helpformat"):
        frame.print_line(" ".join(SHARE_WIDTHS))
        return exits.OK
    text = given.last("format") or (SHARE_LONG if given.has("long") else SHARE_DEFAULT)
    heads = fitted.columns(text, SHARE_WIDTHS)
    with context.open_api() as api:
        cluster = frame.own_cluster(api)
        shares = api.call("Shares", pb.SharesRequest()).shares
    accounts, users = given.listed("accounts"), given.listed("users")
    if not users and not given.has("all"):
        users = [frame.user_name()]
    depths = {"": -1}
    rows = []
    for share in shares:
        if not share.user:
            depths[share.account] = depths.get(share.parent, -1) + 1
        if accounts and share.account not in accounts:
            continue
        if share.user and share.user not in users and not given.has("all"):
            continue
        if not share.user and given.has("Users"):
            continue
        values = _values(share, depths.get(share.account, 0) + bool(share.user), cluster)
        rows.append([values[name] for name, _ in heads])
    ending = "|" if given.has("parsable") or given.has("parsable2") else None
    lines = fitted.lines(
        heads, rows, has_header=not given.has("noheader"), ending=ending, is_ended=given.has("parsable")
    )
    sys.stdout.write("".join(lines))
    return exits.OK


def _values(share: Any, depth: int, cluster: str) -> dict[str, str]:
    empty = dict.fromkeys(SHARE_WIDTHS, "")
    return empty | {
        "Account": " " * depth + (share.account or "root"),
        "Cluster": cluster,
        "EffectvUsage": f"{share.norm_usage:.6f}",
        "FairShare": f"{share.factor:.6f}" if share.user else "",
        "LevelFS": "inf" if share.level < 0 else f"{share.level:.6f}",
        "NormShares": f"{share.norm_shares:.6f}",
        "NormUsage": f"{share.norm_usage:.6f}",
        "RawShares": str(share.shares),
        "RawUsage": f"{share.usage:.0f}",
        "User": share.user,
    }
