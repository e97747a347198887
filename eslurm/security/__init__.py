"""Keys, seals and identities: proofs of authorship. A leaf without network, event loop or protobuf.

The step supervisor runs as root and imports this room: it stays small enough to be read line by line.
"""
