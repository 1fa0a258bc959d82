"""Contenders, one file each, imported only inside its environment. `contract` lists the functions of such a file."""
