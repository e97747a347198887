"""The conversion of a site's files as a whole."""

from __future__ import annotations

from eslurm.compat.slurm.conf.draft import CHANGED, LEFT, Draft
from eslurm.compat.slurm.conf.keys import OTHER
from eslurm.compat.slurm.conf.lines import Line
from eslurm.compat.slurm.conf.nodes import Nodes
from eslurm.compat.slurm.conf.partitions import Partitions, node_sets
from eslurm.compat.slurm.conf.scalars import Scalars, treat
from eslurm.compat.slurm.conf.topology import convert_topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CLUSTER = "cluster"
"""The name of a cluster whose files say none."""
_RECORDS = ("nodename", "partitionname", "nodeset")


def convert(conf: Sequence[Line], topology: Sequence[Line], gres: Sequence[Line]) -> Draft:
    """The configuration of these lines, which the loader takes, and the findings in the order of files and lines."""
    draft = Draft()
    scalars = Scalars(draft)
    records: dict[str, list[Line]] = {kind: [] for kind in _RECORDS}
    for line in conf:
        if line.kind in records:
            records[line.kind].append(line)
        elif line.kind in ("downnodes", "frontendname"):
            treat(draft, OTHER[line.kind], line, line.pairs[0])
        elif line.kind not in ("", "include"):
            scalars.add(line)
    for line in (*conf, *topology, *gres):
        if line.problem:
            draft.add(LEFT, line, None, line.problem)
    scalars.convert()
    nodes = Nodes(draft)
    nodes.convert(
        records["nodename"], scalars, [line for line in gres if line.pairs and line.kind != "include"]
    )
    sets = node_sets(draft, records["nodeset"], nodes)
    Partitions(draft, nodes, sets, scalars).convert(records["partitionname"])
    convert_topology(draft, [line for line in topology if line.kind != "include"], nodes)
    if not draft.get("cluster", "name", ""):
        draft.set("cluster", "name", CLUSTER)
        file = conf[0].file if conf else ""
        draft.add(
            CHANGED, Line(file, 0, []), None, f"no ClusterName: the name is {CLUSTER}: set cluster.name"
        )
    order = {
        file: at for at, file in enumerate(dict.fromkeys(line.file for line in (*conf, *topology, *gres)))
    }
    draft.findings.sort(key=lambda one: (order.get(one.file, 0), one.line))
    return draft
