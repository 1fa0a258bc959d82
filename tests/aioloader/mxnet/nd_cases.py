"""What is observed of expressions of `mx.nd`: values, dtype, shape, and what writing to the result changes.

The cases are the names in nd_expected.json: the dtype of `x`, and an expression, or a statement after which `x` is
observed (a call is one with ";" behind it). The same module is run by the tests and, under Python 3.8 with MXNet 1.9.1,
to write the observations anew::

    python tests/aioloader/mxnet/nd_cases.py tests/aioloader/mxnet/nd_expected.json

A new case is a line ``["float32: x.abs()",null]`` there.
"""

import json
import math
import sys

import numpy as np


def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else str(value)
    if isinstance(value, (int, str, bool, type(None))):
        return value
    return type(value).__name__


def _array(value):
    data = value if type(value) is np.ndarray else value.asnumpy()
    return {"shape": list(data.shape), "dtype": str(data.dtype), "values": _plain(data.reshape(-1).tolist())}


def observe(mx, expression, dtype):
    """Evaluate one case; return what can be seen of it, as JSON has it.

    An array: shape, dtype, values; "writes": the places of `x` that change when the result is filled with 77.
    """
    x = mx.nd.array(np.arange(6).reshape(2, 3), dtype=dtype)
    y = mx.nd.array([[1, 1, 2], [4, 4, 4]], dtype=dtype)
    names = {"mx": mx, "x": x, "y": y, "np": np}
    try:
        with np.errstate(all="ignore"):
            if not _is_expression(expression):
                exec(expression, names)
                return {"x": _array(names["x"])}
            result = eval(expression, names)
            parts = result if isinstance(result, list) else [result]
            if parts and all(hasattr(part, "asnumpy") or type(part) is np.ndarray for part in parts):
                seen = {"parts": [_array(part) for part in parts]}
                seen["list"] = isinstance(result, list)
                before = _array(x)["values"]
                for part in parts:
                    if part.size:
                        part[:] = 77
                after = _array(x)["values"]
                seen["writes"] = [place for place in range(6) if before[place] != after[place]]
                return seen
            return {"value": _plain(result)}
    except Exception as error:
        return {"error": "AttributeError" if isinstance(error, AttributeError) else "error"}


def _is_expression(text):
    try:
        return bool(compile(text, "case", "eval"))
    except SyntaxError:
        return False


def observe_all(mx, names):
    """Return pairs: the name of a case, "dtype: expression", and what is observed."""
    return [(name, observe(mx, *reversed(name.split(": ", 1)))) for name in names]


if __name__ == "__main__":
    import mxnet

    with open(sys.argv[1]) as file:
        names = [name for name, _ in json.load(file)]
    lines = (json.dumps(pair, separators=(",", ":")) for pair in observe_all(mxnet, names))
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
