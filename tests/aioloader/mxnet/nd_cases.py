"""Expressions of `mx.nd`, and what is observed of each: values, dtype, shape, and what writing to the result changes.

The same module is run by the tests and, under Python 3.8 with MXNet 1.9.1, to write the expected observations::

    python tests/aioloader/mxnet/nd_cases.py tests/aioloader/mxnet/nd_expected.json
"""

import json
import math
import sys

import numpy as np

# Expressions that are tried with every source, as method and as function. `x` is the source.
UNARY = [
    "abs",
    "ceil",
    "exp",
    "floor",
    "rint",
    "round",
    "sign",
    "sqrt",
    "square",
    "trunc",
    "sort",
    "argsort",
    "flatten",
    "transpose",
    "zeros_like",
    "ones_like",
    "expand_dims(axis=0)",
    "expand_dims(axis=1)",
    "expand_dims(axis=-1)",
    "squeeze",
    "squeeze(axis=0)",
    "flip(axis=0)",
    "flip(axis=1)",
    "sum",
    "sum(axis=0)",
    "sum(axis=1)",
    "sum(axis=-1,keepdims=True)",
    "sum(axis=(0,1))",
    "sum(axis=())",
    "sum(axis=0,exclude=True)",
    "mean",
    "mean(axis=0)",
    "mean(axis=1,keepdims=True)",
    "mean(axis=1,exclude=True)",
    "max",
    "max(axis=0)",
    "max(axis=1,keepdims=True)",
    "min",
    "min(axis=0)",
    "min(axis=(0,1))",
    "prod",
    "prod(axis=0)",
    "argmax(axis=0)",
    "argmax(axis=1)",
    "argmax(axis=1,keepdims=True)",
    "argmin(axis=0)",
    "norm",
    "norm(ord=1)",
    "norm(axis=0)",
    "norm(ord=1,axis=1,keepdims=True)",
    "tile(reps=2)",
    "tile(reps=(2,1))",
    "tile(reps=(1,2,1))",
    "repeat(repeats=2)",
    "repeat(repeats=2,axis=0)",
    "repeat(repeats=2,axis=1)",
    "clip(a_min=1,a_max=3)",
    "clip(1,3)",
    "sort(axis=0)",
    "sort(is_ascend=False)",
    "sort(axis=0,is_ascend=False)",
    "sort(axis=None)",
    "argsort(axis=0)",
    "argsort(is_ascend=False)",
    "argsort(dtype='int32')",
    "argsort(axis=None)",
    "swapaxes(dim1=0,dim2=1)",
    "slice(begin=(0,1),end=(2,3))",
    "slice(begin=(0,None),end=(1,None))",
    "slice(begin=(1,),end=(2,))",
    "slice(begin=(None,2),end=(None,0),step=(None,-1))",
    "slice_axis(axis=0,begin=0,end=1)",
    "slice_axis(axis=1,begin=1,end=None)",
    "slice_axis(axis=1,begin=-2,end=-1)",
    "split(num_outputs=3)",
    "split(num_outputs=2,axis=0)",
    "split(num_outputs=3,squeeze_axis=True)",
    "split(num_outputs=1)",
    "take(mx.nd.array([1,0]))",
    "take(mx.nd.array([1,5,-1]))",
    "take(mx.nd.array([2,0]),axis=1)",
    "take(mx.nd.array([1,5,-1]),mode='wrap')",
    "take(mx.nd.array([[1],[0]]))",
    "take(mx.nd.array([0,0],dtype='int32'))",
    "take(mx.nd.array([2,-1]),axis=-1)",
    "transpose(axes=(1,0))",
    "broadcast_to(shape=(2,3))",
    "broadcast_to((0,3))",
    "broadcast_axes(axis=0,size=2)",
    "broadcast_axis(axis=0,size=2)",
    "reshape(shape=(3,2))",
    "reshape(shape=(-1,))",
    "reshape(shape=(0,-1))",
    "reshape(shape=(-2,))",
    "reshape(shape=(-3,))",
    "reshape(shape=(-4,1,2,-2))",
    "reshape(shape=(-4,2,-1,0))",
    "reshape(shape=(0,0,1))",
    "reshape(shape=(-1,0),reverse=True)",
    "one_hot(depth=4)",
    "one_hot(depth=2)",
    "one_hot(depth=3,on_value=5,off_value=-1,dtype='int32')",
    "topk",
    "topk(k=2)",
    "topk(k=2,ret_typ='value')",
    "topk(k=1,axis=0,is_ascend=True)",
    "diag",
    "log",
    "log1p",
    "log2",
    "log10",
    "expm1",
    "sin",
    "cos",
    "tan",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "reciprocal",
    "arcsin",
    "arccos",
    "arccosh",
    "arctanh",
    "rcbrt",
    "rsqrt",
    "cbrt",
    "degrees",
    "radians",
    "fix",
    "nansum",
    "nanprod",
    "pick(mx.nd.array([0,1]))",
    "pick(mx.nd.array([2,0]),axis=1,keepdims=True)",
    "slice_like(mx.nd.zeros((1,2)))",
    "broadcast_like(mx.nd.zeros((2,3)))",
    "reshape_like(mx.nd.zeros((3,2)))",
    "shape_array",
    "size_array",
    "split_v2(3,axis=1)",
    "split_v2((1,),axis=1)",
    "split_v2((1,2),axis=1)",
]
# With one source only.
FUNCTIONS_ONLY = [
    "L2Normalization(x)",
    "L2Normalization(x,mode='channel')",
    "L2Normalization(x,mode='spatial')",
    "L2Normalization(x,eps=1)",
    "Cast(x,dtype='int32')",
    "cast(x,dtype='float16')",
    "cast(x,dtype='uint8')",
    "Reshape(x,shape=(3,2))",
    "Flatten(x)",
    "SwapAxis(x,dim1=0,dim2=1)",
    "SliceChannel(x,num_outputs=3)",
    "Concat(x,x)",
    "concat(x,x)",
    "concat(x,x,dim=0)",
    "concat(x,x,dim=-1)",
    "concatenate([x,x])",
    "concatenate([x,x],axis=1)",
    "concatenate([x],always_copy=False)",
    "concatenate([x])",
    "stack(x,x)",
    "stack(x,x,axis=1)",
    "stack(x,x,axis=-1)",
    "stack(x)",
    "add_n(x,x,x)",
    "ElementWiseSum(x,x)",
    "elemwise_add(x,x)",
    "elemwise_sub(x,x)",
    "elemwise_div(x,x+1)",
    "broadcast_axis(x[0:1],axis=0,size=2)",
    "broadcast_axes(x[0:1],axis=0,size=3)",
    "elemwise_mul(x,x)",
    "where(x>2,x,x*0)",
    "where(mx.nd.array([1,0]),x,x*0)",
    "dot(x,x,transpose_b=True)",
    "dot(x,x,transpose_a=True)",
    "dot(x.T,x)",
    "dot(x[0],x[1])",
    "batch_dot(x.expand_dims(0),x.expand_dims(0),transpose_b=True)",
    "moveaxis(x,0,1)",
    "moveaxis(x,(0,),(1,))",
    "reverse(x,axis=0)",
    "reverse(x,axis=(0,1))",
    "sum_axis(x,axis=1)",
    "max_axis(x,axis=1)",
    "min_axis(x,axis=1)",
    "negative(x)",
    "pad(x.reshape((1,1,2,3)),mode='constant',pad_width=(0,0,0,0,1,1,0,2),constant_value=7)",
    "pad(x.reshape((1,1,2,3)),mode='edge',pad_width=(0,0,0,0,1,1,2,0))",
    "pad(x.reshape((1,1,2,3)),mode='reflect',pad_width=(0,0,0,0,1,1,2,1))",
    "Pad(x.reshape((1,1,2,3)),mode='edge',pad_width=(0,0,0,0,1,1,2,0))",
    "logical_not(x)",
    "logical_and(x,x)",
    "logical_or(x,0*x)",
    "logical_xor(x,x)",
    "gather_nd(x,mx.nd.array([[0,1],[1,2]]))",
    "cumsum(x)",
    "cumsum(x,axis=1)",
    "full((2,2),3)",
    "full((2,),3,dtype='int32')",
    "zeros((2,2))",
    "zeros(3)",
    "zeros((2,),dtype='uint8')",
    "ones((1,2))",
    "ones(2,dtype='float64')",
    "empty((0,2))",
    "arange(3)",
    "arange(1,7,2)",
    "arange(0,3,repeat=2)",
    "arange(5,dtype='int32')",
    "arange(0,1,0.25)",
    "linspace(0,1,5)",
    "linspace(0,1,4,endpoint=False)",
    "eye(2)",
    "eye(2,3,1)",
    "eye(3,k=-1,dtype='int32')",
    "array([1,2])",
    "array([[1,2],[3,4]],dtype='uint8')",
    "array(x)",
    "array(np.arange(3))",
    "array(5)",
    "array(np.zeros((2,2),'uint8'))",
    "array(np.array(2.5))",
    "array((1,2.5))",
    "array(x[0])",
    "array([x[0].asnumpy(),x[1].asnumpy()])",
    "array(True)",
    "array([])",
    "zeros_like(x)",
    "ones_like(x)",
    "from_numpy(np.arange(3,dtype='float32'))",
    "sparse.csr_matrix(x).asnumpy()",
    "sparse.csr_matrix(x).stype",
    "sparse.csr_matrix((np.array([1,2,3]),np.array([1,0,2]),np.array([0,1,3])),shape=(2,3)).asnumpy()",
    "sparse.csr_matrix((2,3)).asnumpy()",
    "sparse.csr_matrix(np.eye(3)).indices",
    "sparse.csr_matrix(np.eye(3))[1:3].asnumpy()",
    "sparse.csr_matrix(np.eye(3)).data",
    "sparse.zeros('csr',(2,2)).asnumpy()",
    "sparse.array(mx.nd.sparse.csr_matrix(np.eye(2))).asnumpy()",
    "image.to_tensor(mx.nd.ones((2,3,3)))",
    "image.normalize(mx.nd.ones((3,2,2)),mean=(0,1,2),std=(1,2,3))",
]
OPERATORS = ["+", "-", "*", "/", "%", "**", "==", "!=", ">", ">=", "<", "<="]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "modulo",
    "power",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "broadcast_add",
    "broadcast_plus",
    "broadcast_sub",
    "broadcast_minus",
    "broadcast_mul",
    "broadcast_div",
    "broadcast_mod",
    "broadcast_power",
    "broadcast_maximum",
    "broadcast_minimum",
    "broadcast_equal",
    "broadcast_not_equal",
    "broadcast_greater",
    "broadcast_greater_equal",
    "broadcast_lesser",
    "broadcast_lesser_equal",
    "broadcast_logical_and",
    "broadcast_logical_or",
    "broadcast_logical_xor",
    "true_divide",
    "broadcast_hypot",
]
OTHERS = {
    "same": "y",
    "column": "y[:,0:1]",
    "row": "y[0:1]",
    "int": "2",
    "float": "2.5",
    "float64": "np.float64(2)",
    "int64": "np.int64(2)",
}
# Indices, and methods that are no functions. Statements end in the name that is observed.
INDICES = [
    "x[0]",
    "x[1]",
    "x[-1]",
    "x[0:1]",
    "x[:]",
    "x[::2]",
    "x[::-1]",
    "x[:,0]",
    "x[:,-1]",
    "x[:,0:2]",
    "x[:,::2]",
    "x[:,0:1]",
    "x[0,1]",
    "x[1][2]",
    "x[1,1:]",
    "x[0:1,1:3]",
    "x[0:1,1]",
    "x[...,0]",
    "x[...]",
    "x[0,...]",
    "x[1,::-1]",
    "x[0:2,0:3]",
    "x[0:0]",
    "x[None]",
    "x[:,None]",
    "x[0][None]",
    "x[mx.nd.array([1,0])]",
    "x[mx.nd.array([1,0],dtype='int32')]",
    "x[[1,0]]",
    "x[[0]]",
    "x[np.array([1,0])]",
    "x[:,mx.nd.array([0,2])]",
    "x[[0,1],[1,2]]",
    "x[mx.nd.array([0,1]),mx.nd.array([1,2])]",
    "x[(0,1),]",
    "x[0:1][0]",
    "x[0][0:2]",
    "x[0][0:2][1]",
    "x[-1][0]",
    "x[np.int64(1)]",
    "x[mx.nd.array([1])]",
    "x[mx.nd.array([1],dtype='int32')]",
    "x.T",
    "x.T.T",
    "x.reshape((3,2))",
    "x.reshape(3,2)",
    "x.reshape(-1)",
    "x.reshape((-1,1))",
    "x.reshape((0,3))",
    "x.reshape(3,2).T",
    "x.astype('int32')",
    "x.astype('float32')",
    "x.astype('float32',copy=False)",
    "x.astype('uint8',copy=False)",
    "x.copy()",
    "x.copyto(mx.cpu())",
    "x.copyto(mx.nd.zeros((2,3)))",
    "x.as_in_context(mx.cpu())",
    "x.as_in_ctx(mx.cpu())",
    "x.detach()",
    "x.asnumpy()",
    "x.tostype('default')",
    "x.as_nd_ndarray()",
    "x.expand_dims(0,inplace=True)",
    "x.flatten(inplace=True)",
    "x[0:1].squeeze(0,inplace=True)",
    "x[0:1].squeeze(inplace=True)",
    "x[:,0:1].squeeze(1,inplace=True)",
    "x[0,1].asscalar()",
    "x.size",
    "x.ndim",
    "x.shape",
    "x.stype",
    "x[0].shape",
    "x[0,1].shape",
    "len(x)",
    "float(x[0,1])",
    "int(x[1,0])",
    "bool(x[0,1])",
    "bool(x[0,0])",
    "bool(x[0:0])",
    "bool(x)",
    "x[0:0] or 5",
    "x.transpose()",
    "x.transpose((1,0))",
    "x.transpose(1,0)",
    "list(x)[1]",
    "x[0].tolist()",
    "mx.gluon.utils.split_data(x,2)[1]",
    "mx.gluon.utils.split_data(x,3,batch_axis=1)[1]",
    "mx.gluon.utils.split_data(x,2,even_split=False)[0]",
    "mx.gluon.utils.split_and_load(x,[mx.cpu(0)])[0]",
    "-x",
    "abs(x)",
    "+x",
    "str(type(x[0])).split('.')[-1]",
    "repr(x[0]).split()[-3:]",
    "x.sum()[0]",
    "x.max().shape",
    "x.mean()[:]",
    "x.flatten()[0]",
    "x.ctx.device_type",
    "x.context.device_id",
    "x.norm().asscalar()",
    "x.expand_dims(0)[0]",
    "x[0]+x[1]",
    "x[:,0]*x[:,1]",
    "1-x",
    "2/x",
    "2**x",
    "7%x",
    "1.5*x",
    "x*True",
    "x+x.astype('float32')",
    "x[0]==x[0]",
    "(x>1)+(x>2)",
    "(x>1)*x",
    "(x>1).sum()",
    "((x>1)+(x>2))>1",
    "x*np.float64(2)",
    "np.float64(2)*x",
    "x+np.float32(1)",
    "x.size_array",
    "np.sum(x.asnumpy())",
    "x.broadcast_axes(axis=0,size=1)",
    "x.round()",
    "sorted(x[0].asnumpy().tolist())",
    "x.iscontiguous",
    "x.asnumpy().flags.writeable",
    "x.grad",
    "x.writable",
    "x.wait_to_read()",
    "max(x[0]).asscalar()",
    "min(x[1]).asscalar()",
    "sum(x)",
    "x[0]<x[1]",
    "any(x[0])",
    "x==None",
    "x!=None",
    "[x[0]]==[x[0]]",
    "x[0]in[x[0]]",
]
STATEMENTS = [
    "x[0] = 5",
    "x[:] = 5",
    "x[:] = mx.nd.ones((2, 3))",
    "x[:] = np.ones((2, 3))",
    "x[:] = [[1, 2, 3], [4, 5, 6]]",
    "x[0][:] = 7",
    "x[0][1] = 7",
    "x[0, 1] = 7",
    "x[:, 1] = 7",
    "x[:, 1][:] = 7",
    "x[:, 0:2] = mx.nd.zeros((2, 2))",
    "x[mx.nd.array([0])] = 9",
    "x[[0, 1], [1, 2]] = 9",
    "x[np.array([1])] = mx.nd.ones((1, 3))",
    "x[0:1] = mx.nd.array([[1, 2, 3]])",
    "x[1] = mx.nd.array([1, 2, 3])",
    "x[1] = np.array([1, 2, 3])",
    "x[1] = [1, 2, 3]",
    "x[::-1] = mx.nd.array([[1, 2, 3], [4, 5, 6]])",
    "x[-1][0] = 2",
    "v = x[1]; v += 3",
    "v = x[1]; v *= 2",
    "v = x[1]; v -= 1",
    "v = x[1]; v /= 2",
    "v = x[1]; v %= 2",
    "v = x[1]; v[:] = 3",
    "v = x[1, 1]; v[:] = 3",
    "v = x[0]; v[1:] = 8",
    "v = x[:, 1]; v += 3",
    "v = x.reshape((6,)); v[3] = 9",
    "v = x.T; v[0] = 9",
    "v = x[0:1]; v += x[1:2]",
    "v = x; v += 1",
    "v = x.reshape((3, 2)); v *= 2",
    "x += np.float64(1.5)",
    "x *= mx.nd.array([[1, 2, 3]])",
    "mx.nd.clip(x, 1, 3, out=x)",
    "mx.nd.stack(x[0], x[1], out=x)",
    "mx.nd.sum(x, axis=0, out=x[0])",
    "mx.nd.broadcast_add(x, x, out=x)",
    "x[0].copyto(x[1])",
    "mx.nd.zeros((2, 3)).copyto(x)",
    "x[1:].asnumpy()[:] = 5",
    "np.asarray(x.asnumpy())[0] = 5",
    "y[:] = x; y[0] = 4",
    "x[...] = 3",
    "x[0] = x[1]",
    "x[:, 1:] = x[:, :2]",
    "x[0:2, 1] = mx.nd.array([8, 9])",
    "x[0:2, 1:2] = mx.nd.array([[8], [9]])",
    "z = mx.nd.zeros((4,)); z[1][:] = 5; z[-1][0] = 2; v = z[0]; v += 3; x = z",
    "z = mx.nd.zeros((3, 1)); z[1][:] = 5; z[2] = 3; x = z",
    "z = mx.nd.zeros((2, 2)); z[0][:] = mx.nd.array([3, 4]); x = z",
    "z = mx.nd.empty((2,)); z[0][:] = 1.0; z[1][:] = mx.nd.array([2]); x = z",
    "z = mx.nd.zeros((2,)); z[0][:] = np.array([4.0]); x = z",
    "z = mx.nd.zeros((2, 2)); z[0][:] = np.array([4.0, 5]); x = z",
]
DTYPES = ["float32", "float64", "int32", "uint8"]


def _case(expression, name):
    """Return the calls of one UNARY entry: as a function and as a method."""
    call, _, rest = expression.partition("(")
    rest = rest[:-1]
    separator = "," if rest else ""
    return [
        (f"mx.nd.{call}(x{separator}{rest})", name),
        (f"x.{call}({rest})", name),
    ]


def cases():
    """Return pairs: an expression or statement, and the dtype of x."""
    found = []
    for dtype in DTYPES:
        for expression in UNARY:
            found += _case(expression, dtype)
        for symbol in OPERATORS:
            found += [(f"x {symbol} {other}", dtype) for other in OTHERS.values()]
            found += [(f"{other} {symbol} x", dtype) for other in ("2", "2.5")]
    for dtype in ("float32", "int32"):
        for name in BINARY:
            found += [(f"mx.nd.{name}(x, {other})", dtype) for other in OTHERS.values()]
        found += [(f"mx.nd.{each}", dtype) for each in FUNCTIONS_ONLY]
        found += [(each, dtype) for each in INDICES]
        found += [(each, dtype) for each in STATEMENTS]
    return found


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
            if (
                ("=" in expression and expression in STATEMENTS)
                or ";" in expression
                or expression in STATEMENTS
            ):
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


def observe_all(mx):
    """Return the observations of every case, by "dtype: expression"."""
    return {f"{dtype}: {expression}": observe(mx, expression, dtype) for expression, dtype in cases()}


if __name__ == "__main__":
    import mxnet

    with open(sys.argv[1], "w") as file:
        lines = (json.dumps(pair, separators=(",", ":")) for pair in observe_all(mxnet).items())
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
