"""Commands of the command line: a module for each, with function and arguments. The core imports none of them."""
