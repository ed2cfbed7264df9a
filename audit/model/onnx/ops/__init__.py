"""Every ONNX operator that can be converted, by family. Importing this package registers them all."""

from audit.model.onnx.ops import (  # noqa: F401
    arithmetic,
    fused,
    image,
    index,
    ml,
    nonlinear,
    recurrent,
    reduce,
    shape,
    window,
)
