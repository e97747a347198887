"""Members that joined over the network: join tokens, memberships that were issued, and those that are revoked."""
