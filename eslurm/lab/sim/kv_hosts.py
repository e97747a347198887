"""The hosts of the shared store's members: each starts its server anew after a crash."""

from __future__ import annotations

from eslurm.lab.kv.image import KvImage
from eslurm.lab.sim.bare_process import Ground
from eslurm.lab.sim.kv_ensemble import MEMBERS, KvEnsemble
from eslurm.lab.sim.kv_server import KvServer, kv_address


class KvHosts:
    """All of them. `image` is what the store holds."""

    def __init__(self, ground: Ground, seed: str) -> None:
        self.image = KvImage()
        self.ensemble = KvEnsemble(ground, self.image, seed)
        self.addresses = tuple(kv_address(index) for index in range(MEMBERS))
        self.servers: dict[int, KvServer] = {}
        self._ground = ground

    def start(self) -> None:
        """Switch all on."""
        for index in range(MEMBERS):
            self.start_member(index)
        self.ensemble.start()

    def start_member(self, index: int) -> None:
        """A member begins to serve, unless it does."""
        if index not in self.servers:
            server = KvServer(self._ground, index, self.ensemble)
            self.servers[index] = self.ensemble.members[index] = server
            self._ground.network.attach(server)
            server.start()

    def crash(self, index: int) -> bool:
        """A member dies; False: it was not there."""
        server = self.servers.pop(index, None)
        if server is None:
            return False
        server.alive = False
        self._ground.network.detach(server)
        return True
