"""What the command line does, as functions: draw, pack, show, measure. Nothing in the core imports this."""
