"""The shared key-value store in etcd 3.4 or newer, over its own gRPC API."""
