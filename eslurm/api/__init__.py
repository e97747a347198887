"""The API for users: methods, authorisation, limits, servers and clients, protobuf from and to the core."""
