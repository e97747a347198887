"""What API and links share: channel options, TLS, streams of frames, bounds on strangers."""
