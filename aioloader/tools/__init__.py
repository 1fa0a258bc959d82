"""Functions behind the command line: draw, pack, inspect, measure. The core imports none of them."""
