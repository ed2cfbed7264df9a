"""Every ONNX operator that can be converted, by family. Importing this package registers them all."""

from audit.model.onnx.ops import (  # noqa: F401
    arithmetic,
    conv,
    create,
    fused,
    image,
    index,
    matrix,
    microsoft,
    ml,
    nonlinear,
    norm,
    recurrent,
    reduce,
    shape,
    signal,
    window,
)
