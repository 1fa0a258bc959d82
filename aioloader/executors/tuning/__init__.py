"""Choice of the executor and of the number of workers by measurement."""
