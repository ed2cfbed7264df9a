"""Every ONNX operator that can be converted, by family. Importing this package registers them all."""

from audit.model.onnx.ops import (  # noqa: F401
    activation,
    attention,
    conv,
    create,
    elementwise,
    image,
    index,
    matrix,
    microsoft,
    ml,
    norm,
    pool,
    recurrent,
    reduce,
    shape,
    signal,
)
