"""Side-car indexes of the samples of shards.

A shard is scanned once; its index is kept next to it or in the user's cache directory, for one state of the shard.
"""
