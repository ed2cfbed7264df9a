"""What a network may use: every operator that a program from a file is let call, and how long one may compute.

A list of what is allowed, not of what is not: operators that read and write files, print, seed, open libraries or trust
unchecked pointers are not on it, and neither is what a later version of torch may add.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from audit.errors import ModelError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ATEN = _words(
    """
    abs absolute acos acosh adaptive_avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv addcmul
    addmm _addmm_activation addmv addr adjoint affine_grid_generator alias all allclose alpha_dropout amax amin
    aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere
    as_strided as_strided_scatter asin asinh _assert_async _assert_scalar _assert_tensor_metadata atan atan2 atanh
    atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm _batch_norm_impl_index
    bernoulli bilinear binary_cross_entropy binary_cross_entropy_with_logits bincount bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor block_diag bmm broadcast_tensors broadcast_to bucketize
    cartesian_prod _cast_Double _cast_Float _cast_Int _cast_Long cat cdist _cdist_forward ceil celu chain_matmul
    chalf channel_shuffle cholesky chunk clamp clamp_max clamp_min clip clone col2im column_stack complex concat
    concatenate conj _conj conj_physical constant_pad_nd contiguous conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d _convolution convolution _convolution_mode copy copysign corrcoef cos cosh
    cosine_similarity count_nonzero cov cross cross_entropy_loss cummax cummin cumprod cumsum cumulative_trapezoid
    deg2rad dense_dim det detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma dim _dim_arange
    dist div divide dot dropout dsplit dstack einsum elu embedding embedding_bag _embedding_bag empty empty_like
    empty_permuted empty_strided eq equal erf erfc erfinv exp exp2 expand expand_as expm1 eye feature_alpha_dropout
    feature_dropout _fft_c2c _fft_c2r fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2
    fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2
    fft_irfftn _fft_r2c fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn fill fix flatten flip fliplr flipud float_power
    floor floor_divide fmax fmin fmod frac fractional_max_pool2d fractional_max_pool3d frexp frobenius_norm full
    full_like gather gcd ge gelu ger get_device glu gradient greater greater_equal grid_sampler grid_sampler_2d
    grid_sampler_3d group_norm gru gru_cell gt hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh
    heaviside histc hsplit hstack hypot i0 igamma igammac im2col imag index index_add index_fill index_put
    index_reduce index_select indices inner instance_norm inverse is_complex is_conj is_contiguous is_floating_point
    is_neg is_nonzero is_same_size is_signed isclose isfinite isin isinf isnan isneginf isposinf isreal istft item
    kl_div kron kthvalue layer_norm lcm ldexp le leaky_relu lerp less less_equal lgamma lift lift_fresh
    lift_fresh_copy linalg__powsum linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross _linalg_det
    linalg_det linalg_diagonal linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product
    linalg_inv linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu
    linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matmul linalg_matrix_exp linalg_matrix_norm
    linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv _linalg_slogdet linalg_slogdet
    linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv
    linalg_tensorsolve linalg_vander linalg_vecdot linalg_vector_norm linear linspace _local_scalar_dense log log10
    log1p log2 log_sigmoid log_sigmoid_forward _log_softmax log_softmax logaddexp logaddexp2 logcumsumexp logdet
    logical_and logical_not logical_or logical_xor logit logspace logsumexp lstm lstm_cell lt mH mT masked_fill
    masked_scatter masked_select _masked_softmax matmul matrix_H matrix_exp matrix_power max max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d
    max_unpool3d maximum mean median meshgrid min minimum mish mm mode moveaxis movedim mse_loss msort mul multiply
    mv mvlgamma nan_to_num nanmean nanmedian nansum narrow native_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_no_training native_channel_shuffle native_dropout native_group_norm native_layer_norm
    _native_multi_head_attention native_norm ne neg negative _nested_tensor_from_mask
    _nested_tensor_from_mask_left_aligned new_empty new_full new_ones new_zeros nextafter nonzero nonzero_numpy norm
    norm_except_dim not_equal nuclear_norm numel numpy_T one_hot ones ones_like outer pad _pad_circular _pad_enum
    pad_sequence pairwise_distance pdist permute pinverse pixel_shuffle pixel_unshuffle polar polygamma positive pow
    prelu _prelu_kernel prod promote_types put rad2deg rand rand_like randn randn_like range ravel real reciprocal
    reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder renorm repeat repeat_interleave
    replication_pad1d replication_pad2d replication_pad3d reshape _reshape_alias reshape_as resolve_conj resolve_neg
    result_type rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round row_stack rrelu rsqrt rsub
    _safe_softmax scalar_tensor scaled_dot_product_attention _scaled_dot_product_attention_math
    _scaled_dot_product_flash_attention_for_cpu scatter scatter_add scatter_reduce searchsorted select
    select_scatter selu sgn _shape_as_tensor sigmoid sign signbit silu sin sinc sinh size slice slice_scatter
    slogdet _softmax softmax softplus softshrink sort special_airy_ai special_digamma special_entr special_erf
    special_erfc special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammainc
    special_gammaincc special_gammaln special_i0 special_i0e special_i1 special_i1e special_log1p special_log_ndtr
    special_log_softmax special_logit special_logsumexp special_multigammaln special_ndtr special_ndtri
    special_polygamma special_psi special_round special_softmax special_xlog1py special_xlogy special_zeta split
    split_with_sizes sqrt square squeeze stack _stack std std_mean stft stride sub subtract sum sum_to_size swapaxes
    swapdims sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size sym_stride t take
    take_along_dim tan tanh tensor_split tensordot threshold tile to _to_copy to_dense to_padded_tensor topk trace
    _transform_bias_rescale_qkv _transformer_encoder_layer_fwd transpose trapezoid trapz tril tril_indices
    _trilinear triu triu_indices true_divide trunc type_as unbind unflatten unfold _unique2 unique_consecutive
    unique_dim unique_dim_consecutive unsafe_chunk _unsafe_index unsafe_split unsafe_split_with_sizes _unsafe_view
    unsqueeze upsample_bicubic2d _upsample_bicubic2d_aa upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_trilinear3d vander var var_mean vdot view view_as
    view_as_complex view_as_real vsplit vstack _weight_norm _weight_norm_interface where xlogy zero zeros zeros_like
    """
)
"""Tensors in, tensors out. An operator that works in place goes by the same name with an underscore."""

LANGUAGE = _words(
    """
    __and__ append as_tensor Bool broadcast_shapes clear Complex __contains__ copy count cpu __derive_index device
    dict endswith extend fabs find Float FloatImplicit floordiv format get _get_tracing_state __getitem__
    has_torch_function index _infer_size insert Int __interpolate IntImplicit __is__ is_autocast_cpu_enabled
    is_autocast_enabled is_grad_enabled is_scripting __isnot__ items join keys len list lower __lshift__
    mathremainder _no_grad_embedding_renorm_ __not__ __or__ percentFormat pop __range_length remove replace reverse
    __round_to_zero_floordiv __rshift__ ScalarImplicit _set_item Size _size_if_not_equal slice sorted startswith str
    tensor _unwrap_optional update upper __upsample __upsample_bilinear __upsample_nearest values warn __xor__
    """
)
"""Numbers, lists, words and dictionaries of TorchScript, in the name space `aten`, too."""

PRIM = _words(
    """
    abs CallFunction CallMethod Constant ConstantChunk CreateObject data device DictConstruct dtype Enter EnumName
    EnumValue Exit GetAttr If IfThenElse index is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia
    is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu isinstance itemsize layout ListConstruct
    ListUnpack Loop max min ModuleContainerIndex name nbytes NumToTensor RaiseException rangelist requires_grad
    SetAttr shape StringIndex tolist TupleConstruct TupleIndex TupleSlice TupleUnpack type unchecked_cast
    unchecked_unwrap_optional Uninitialized
    """
)
"""Statements of TorchScript."""

PRIMS = _words(
    """
    abs acos acosh add amax amin asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor
    broadcast_in_dim cat cbrt ceil clone collapse collapse_view conj conj_physical convert_element_type cos cosh
    digamma div eq erf erf_inv erfc erfcx exp exp2 expm1 fft_c2c fft_c2r fft_r2c fill floor fmax fmin fmod frexp
    full full_like gcd ge gt hypot igamma igammac imag iota isfinite item le lgamma log log10 log1p log2 lt maximum
    maximum_value minimum minimum_value mul ndtri ne neg nextafter pow prod real reciprocal remainder reshape rev
    round rsqrt scalar_tensor shift_left shift_right_arithmetic sign signbit sin sinh split_dim sqrt squeeze sub sum
    tan tanh transpose trunc var view_of view_of_dtype where xor_sum zeta
    """
)
"""What torch writes operators in."""


def allowed(kind: str) -> bool:
    """Whether a network may call `kind`, such as `aten::relu_`.

    >>> [allowed(kind) for kind in ("aten::relu_", "prim::Loop", "aten::from_file", "aten::save", "prim::Print")]
    [True, True, False, False, False]
    """
    space, _, name = kind.partition("::")
    if space == "aten":
        return name in ATEN or name.removesuffix("_") in ATEN or name in LANGUAGE
    return name in {"prim": PRIM, "prims": PRIMS}.get(space, ())


# How long an operator computes, told from the shapes that it is given: no library can be stopped within one, and one
# call can compute for days. What is told is the least on an ordinary processor.


LONGEST = 10.0  # seconds of one forward pass that is tried; before the first number there are some fifteen
MOST_OPERATORS = 40_000  # that a script runs in it, since each becomes one of a graph
READ, MULTIPLIED = 1e-9, 5e-11  # seconds for a number that is read, and for a product that is added to others
CONVOLVED, COMPARED, POWERED = 4, 20, 100  # as many products are one of a convolution, of a pool, of a distance
READS = dict.fromkeys(_words("polygamma special_zeta igamma igammac gcd lcm special_airy_ai logcumsumexp"), 200)
READS |= dict.fromkeys(_words("sort topk kthvalue median nanmedian mode _unique2 unique_dim searchsorted"), 100)
READS |= dict.fromkeys(_words("_fft_r2c _fft_c2r _fft_c2c"), 100)
"""As how many numbers one counts that is sorted, or put into a series."""
FACTORS = {"_linalg_svd": 30, "_linalg_eigh": 15, "linalg_eig": 50, "linalg_matrix_exp": 20, "linalg_lstsq": 20}
"""Times n³, of what takes n³ for a matrix; the others take 3 at most."""
LINEAR = ("linalg_vector_norm", "linalg_cross", "linalg_vecdot", "linalg_diagonal")
SOLVERS = ("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu_solve", "orgqr", "ormqr", "triangular_solve")


def _of_matrices(args: Sequence[Any]) -> float:
    """Products of mm, bmm and their kin: the last two matrices [.., n, k] and [.., k, m]."""
    *_, left, right = (each for each in args[:3] if isinstance(each, Tensor))
    return float(left.numel() * right.shape[-1])


def _of_windows(args: Sequence[Any]) -> float:
    """Products of a convolution: every weight at every place of the output."""
    x, weight, _, stride, padding, dilation, transposed = args[:7]
    if transposed:
        return float(CONVOLVED * x.numel() * weight[:1].numel())
    sides, kernel = x.shape[2:], weight.shape[2:]
    steps, around, apart = (list(each) * (len(sides) // len(each)) for each in (stride, padding, dilation))
    spans = (d * (k - 1) + 1 for d, k in zip(apart, kernel, strict=True))
    places = ((n + 2 * p - k) // s + 1 for n, p, k, s in zip(sides, around, spans, steps, strict=True))
    return float(CONVOLVED * len(x) * math.prod(places) * weight.numel())


def _of_pools(args: Sequence[Any]) -> float:
    kernel, stride = args[1], args[2] if len(args) > 2 else ()
    return float(COMPARED * args[0].numel() * math.prod(kernel) / math.prod(stride or kernel))


def _of_pairs(args: Sequence[Any]) -> float:
    """Every row with every other one, or with itself."""
    rows, *others = (each for each in args[:2] if isinstance(each, Tensor))
    return float(rows.numel() * (others or [rows])[0].shape[-2])


def _of_bags(args: Sequence[Any]) -> float:
    """A row of the table for each index, however many there are in a bag."""
    return float(COMPARED * args[1].numel() * args[0].shape[-1])


def _of_rows(args: Sequence[Any]) -> float:
    """Every weight for every row: recurrent layers, and whole blocks of a transformer."""
    x, *weights = (each for each in tree_leaves(args) if isinstance(each, Tensor))
    return float(x.numel() // max(x.shape[-1], 1) * sum(each.numel() for each in weights))


RULES: dict[str, Callable[[Sequence[Any]], float]] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addbmm", "_addmm_activation"), _of_matrices),
    **dict.fromkeys(("convolution", "_convolution"), _of_windows),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"), _of_pools),
    **dict.fromkeys(("_cdist_forward", "_pdist_forward"), lambda args: POWERED * _of_pairs(args)),
    "_scaled_dot_product_flash_attention_for_cpu": _of_pairs,
    "fractional_max_pool2d": lambda args: COMPARED * len(args[0]) * math.prod(args[1]) * math.prod(args[2]),
    **dict.fromkeys(("mkldnn_rnn_layer", "_transformer_encoder_layer_fwd", "_native_multi_head_attention"), _of_rows),
    "_trilinear": lambda args: float(len(args[0]) * args[1].numel()),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _of_bags),
    "conv_tbc": lambda args: float(args[0].numel() * args[1].numel() / max(args[1].shape[1], 1)),
}
"""Products that an operator adds up."""


def seconds_of(name: str, args: Sequence[Any]) -> float:
    """How long the operator computes, at the least.

    >>> seconds_of("relu", [torch.zeros(4)]) < seconds_of("mm", [torch.zeros(9, 9)] * 2) < 1
    True
    >>> seconds_of("linalg_matrix_exp", [torch.zeros(1).expand(9999, 9999)]) > LONGEST
    True
    """
    tensors = [each for each in tree_leaves(args) if isinstance(each, Tensor)]
    largest = float(max((each.numel() for each in tensors), default=0))
    products = 0.0
    if name in RULES:
        products = RULES[name](args)
    elif name in SOLVERS or (name.lstrip("_").startswith("linalg_") and name not in LINEAR):
        side = max((min(each.shape[-2:], default=1) for each in tensors), default=1)
        products = FACTORS.get(name, 3) * largest * side
    return largest * READ * READS.get(name, 1) + products * MULTIPLIED / torch.get_num_threads()


class Clock(TorchDispatchMode):
    """Ends what computes for too long, before an operator that does: a few words of a script can compute for days."""

    def __init__(self, network: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.end, self.why = time.thread_time() + LONGEST, ""
        self._left = MOST_OPERATORS if isinstance(network, torch.jit.ScriptModule) else math.inf

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._left -= 1
        name = func.overloadpacket.__name__
        takes = 0.0 if func.is_view else seconds_of(name, (*args, *(kwargs or {}).values()))
        if self._left < 0:
            raise self._ended(f"runs more than {MOST_OPERATORS:,} operators")
        if time.thread_time() + takes > self.end:
            raise self._ended(f"takes over {LONGEST:g} seconds" + f", in {name} alone" * (takes > LONGEST))
        return func(*args, **(kwargs or {}))

    def _ended(self, what: str) -> TimeoutError:
        self.why = f"a forward pass of a few samples {what}, and an audit takes thousands of them"
        return TimeoutError(self.why)


@contextmanager
def bounded(network: Any) -> Iterator[None]:
    """Within it, what computes for too long is a sentence."""
    clock = Clock(network)
    try:
        with clock:
            yield
    except Exception as error:  # as which a script hands it on
        if clock.why:
            raise ModelError(f"{clock.why}; audit a smaller model.") from error
        raise
