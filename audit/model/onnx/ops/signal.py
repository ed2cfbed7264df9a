"""Fourier transforms, with complex numbers as a last axis of two."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import operator


@operator("DFT")
def _dft(x: Tensor, length: Tensor | None = None, axis_input: Tensor | None = None, *, axis: int | None = None,
         inverse: int = 0, onesided: int = 0, opset: int) -> Tensor:  # fmt: skip
    default = 1 if opset < 20 else -2
    along = int(axis_input) if axis_input is not None else default if axis is None else axis
    along = along % x.dim()
    size = None if length is None else int(length)
    if inverse and onesided:
        signal: Tensor = torch.fft.irfft(torch.view_as_complex(x.contiguous()), size, along)
        return signal.unsqueeze(-1)
    signal = torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else torch.complex(x[..., 0], x[..., 0] * 0)
    spectrum = torch.fft.ifft(signal, size, along) if inverse else torch.fft.fft(signal, size, along)
    if onesided:
        spectrum = spectrum.narrow(along, 0, spectrum.shape[along] // 2 + 1)
    return torch.view_as_real(spectrum)


@operator("STFT")
def _stft(x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None, *,
          onesided: int = 1) -> Tensor:  # fmt: skip
    signal = x[..., 0] if x.dim() == 3 and x.shape[-1] == 1 else x
    size = int(length) if length is not None else len(window) if window is not None else signal.shape[1]
    if signal.dim() == 3:
        signal = torch.view_as_complex(signal.contiguous())
    frames = signal.unfold(1, size, int(step))  # [n, frames, size]
    if window is not None:
        frames = frames * F.pad(window, [0, size - len(window)])
    spectrum = torch.fft.fft(frames, dim=-1)
    return torch.view_as_real(spectrum[..., : size // 2 + 1] if onesided else spectrum)
