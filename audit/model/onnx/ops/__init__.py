"""Every ONNX operator that can be converted, by family. Importing this package registers them all."""

from audit.model.onnx.ops import arithmetic, fused, image, index, nonlinear, recurrent, reduce, shape, window  # noqa: F401
