"""Parsers of the formats of shards. Pure: bytes in, values out; they read no file and import no optional library."""
