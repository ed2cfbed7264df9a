"""The numeric part of ai.onnx.ml: what scikit-learn exports put before and after their products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.values import Ints, ints

DOMAIN = "ai.onnx.ml"


def _real(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def _row(values: list[float] | None, default: float, like: Tensor) -> Tensor:
    return torch.tensor(values or [default], dtype=like.dtype, device=like.device)


@operator("Scaler", domain=DOMAIN)
def _scaler(x: Tensor, *, offset: list[float] | None = None, scale: list[float] | None = None, like: Tensor) -> Tensor:
    return (_real(x, like) - _row(offset, 0.0, like)) * _row(scale, 1.0, like)


@operator("Normalizer", domain=DOMAIN)
def _normalizer(x: Tensor, *, norm: str = "MAX", like: Tensor) -> Tensor:
    x = _real(x, like)
    if norm == "MAX":
        size = x.amax(-1, keepdim=True)  # onnxruntime takes the largest value, not the largest magnitude
    else:
        size = torch.linalg.vector_norm(x, 1 if norm == "L1" else 2, -1, keepdim=True)
    return x / torch.where(size == 0, torch.ones_like(size), size)


@operator("Imputer", domain=DOMAIN)
def _imputer(x: Tensor, *, imputed_value_floats: list[float] | None = None, imputed_value_int64s: Ints = None,
             replaced_value_float: float = 0.0, replaced_value_int64: int = 0, like: Tensor) -> Tensor:  # fmt: skip
    if imputed_value_floats:
        x = _real(x, like)
        missing = x.isnan() if replaced_value_float != replaced_value_float else x == replaced_value_float
        return torch.where(missing, _row(imputed_value_floats, 0.0, like), x)
    return torch.where(x == replaced_value_int64, torch.tensor(ints(imputed_value_int64s), device=x.device), x)


@operator("Binarizer", domain=DOMAIN)
def _binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).to(x.dtype)


@operator("ArrayFeatureExtractor", domain=DOMAIN)
def _array_feature_extractor(x: Tensor, index: Tensor) -> Tensor:
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    return rows.index_select(-1, index.flatten().long())


@operator("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(*inputs: Tensor, inputdimensions: Ints = None, like: Tensor) -> Tensor:
    return torch.cat([_real(x.reshape(x.shape[0], -1), like) for x in inputs], 1)


def _numeric(attributes: Mapping[str, Any]) -> bool:
    return not any("string" in name for name in attributes if name != "default_string")


@operator("LabelEncoder", domain=DOMAIN, accepts=_numeric)
def _label_encoder(x: Tensor, *, keys_int64s: Ints = None, keys_floats: list[float] | None = None,
                   keys_tensor: Tensor | None = None, values_int64s: Ints = None,
                   values_floats: list[float] | None = None, values_tensor: Tensor | None = None,
                   default_int64: int = -1, default_float: float = -0.0, default_string: str = "",
                   default_tensor: Tensor | None = None, like: Tensor) -> Tensor:  # fmt: skip
    keys = next(torch.as_tensor(k) for k in (keys_tensor, keys_int64s, keys_floats) if k is not None)
    values = next(torch.as_tensor(v) for v in (values_tensor, values_int64s, values_floats) if v is not None)
    whole = not values.is_floating_point()
    other = default_tensor if default_tensor is not None else torch.tensor(default_int64 if whole else default_float)
    values, other = (part.to(x.device, values.dtype if whole else like.dtype) for part in (values, other.reshape(())))
    keys = keys.to(x.device, x.dtype)
    same = (x.unsqueeze(-1) == keys) | ((x != x).unsqueeze(-1) & (keys != keys))
    return torch.where(same.any(-1), values[same.int().argmax(-1)], other)


@operator("OneHotEncoder", domain=DOMAIN, accepts=_numeric)
def _one_hot_encoder(x: Tensor, *, cats_int64s: Ints = None, zeros: int = 1, like: Tensor) -> Tensor:
    return _real(x.long().unsqueeze(-1) == torch.tensor(ints(cats_int64s), device=x.device), like)


@operator("LinearRegressor", domain=DOMAIN)
def _linear_regressor(x: Tensor, *, coefficients: list[float], intercepts: list[float] | None = None,
                      post_transform: str = "NONE", targets: int = 1, like: Tensor) -> Tensor:  # fmt: skip
    y = _real(x, like) @ torch.tensor(coefficients, dtype=like.dtype, device=like.device).reshape(targets, -1).T
    return _post_transform(y if not intercepts else y + _row(intercepts, 0.0, like), post_transform)


def _post_transform(scores: Tensor, name: str) -> Tensor:
    if name == "SOFTMAX":
        return torch.softmax(scores, -1)
    return torch.sigmoid(scores) if name == "LOGISTIC" else scores
