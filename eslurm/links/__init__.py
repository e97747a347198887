"""Links between daemons: streams, hello, signed books, blobs, the driver of the relay, joining."""
