"""Names of the operators of MXNet, most of them of networks, that `mx.nd` can only import: they raise when used."""

from __future__ import annotations

__all__ = ("OPERATORS",)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPERATORS = _names("""
    Activation BatchNorm BatchNorm_v1 BilinearSampler BlockGrad CTCLoss CachedOp Convolution Convolution_v1
    Correlation Crop Custom Deconvolution Dropout Embedding FullyConnected GridGenerator GroupNorm
    IdentityAttachKLSparseReg InstanceNorm LRN LayerNorm LeakyReLU LinearRegressionOutput LogisticRegressionOutput
    MAERegressionOutput MakeLoss Pooling Pooling_v1 RNN ROIPooling SVMOutput SequenceLast SequenceMask
    SequenceReverse Softmax SoftmaxActivation SoftmaxOutput SpatialTransformer UpSampling adam_update all_finite
    amp_cast amp_multicast argmax_channel batch_take cast_storage choose_element_0index col2im crop ctc_loss
    depth_to_space erf erfinv fill_element_0index from_dlpack ftml_update ftrl_update gamma gammaln
    get_indexing_dispatch_code get_oshape_of_gather_nd_op hard_sigmoid histogram identity im2col
    indexing_key_expand_implicit_axes khatri_rao lamb_update_phase1 lamb_update_phase2 linalg_det linalg_extractdiag
    linalg_extracttrian linalg_gelqf linalg_gemm linalg_gemm2 linalg_inverse linalg_makediag linalg_maketrian
    linalg_potrf linalg_potri linalg_slogdet linalg_sumlogdiag linalg_syrk linalg_trmm linalg_trsm log_softmax
    make_loss moments mp_lamb_update_phase1 mp_lamb_update_phase2 mp_nag_mom_update mp_sgd_mom_update mp_sgd_update
    multi_all_finite multi_lars multi_mp_sgd_mom_update multi_mp_sgd_update multi_sgd_mom_update multi_sgd_update
    multi_sum_sq nag_mom_update onehot_encode preloaded_multi_mp_sgd_mom_update preloaded_multi_mp_sgd_update
    preloaded_multi_sgd_mom_update preloaded_multi_sgd_update random_exponential random_gamma
    random_generalized_negative_binomial random_negative_binomial random_pdf_dirichlet random_pdf_exponential
    random_pdf_gamma random_pdf_generalized_negative_binomial random_pdf_negative_binomial random_pdf_normal
    random_pdf_poisson random_pdf_uniform random_poisson ravel_multi_index relu reset_arrays rmsprop_update
    rmspropalex_update sample_exponential sample_gamma sample_generalized_negative_binomial sample_multinomial
    sample_negative_binomial sample_normal sample_poisson sample_uniform scatter_nd sgd_mom_update sgd_update
    sigmoid signsgd_update signum_update smooth_l1 softmax softmax_cross_entropy softmin softsign space_to_depth
    stop_gradient to_dlpack_for_read to_dlpack_for_write unravel_index
""")
