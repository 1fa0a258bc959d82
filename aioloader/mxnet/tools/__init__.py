"""MXNet's programs at the paths where scripts look for them: ``mxnet.__path__[0] + "/tools/im2rec.py"``."""
