"""Parts shared by API and links: channel options, TLS, streams of frames, bounds on strangers."""
