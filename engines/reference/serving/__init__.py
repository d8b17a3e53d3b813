"""The HTTP face of the decoding engine: OpenAI's API, streams, metrics."""
