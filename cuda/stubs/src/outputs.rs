//! Which arguments of a vendor function its caller reads back, and what they get.
//!
//! A pattern may hold `*`; the first that fits counts. `?` is one letter: the number type in
//! `cusolverDn?potrf`. Indices are the documented positions of arguments, from 0.

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A fresh object behind a pointer.
    Handle,
    Int(i32),
    Size(usize),
    /// This many bytes of zero: a null handle, a number of any kind, a struct.
    Zero(usize),
    /// A constant string.
    Text,
    /// The part of the library's version that the first argument asks for.
    Version,
}

use Value::*;

type Outputs = &'static [(usize, Value)];

/// One find of an algorithm: no workspace, success.
const PERFORMANCE: Value = Zero(48);

#[rustfmt::skip]
static OUTPUTS: &[(&str, Outputs)] = &[
    ("*GetProperty", &[(1, Version)]),
    // cuBLAS: results on the host, where the caller may have chosen that
    ("cublasCreate*", &[(0, Handle)]),
    ("cublasGet*Mode*", &[(1, Int(0))]),
    ("cublasGetStream*", &[(1, Zero(8))]),
    ("cublas?getrsBatched", &[(9, Int(0))]),
    ("cublas?gelsBatched", &[(9, Int(0))]),
    ("cublas?geqrfBatched", &[(6, Int(0))]),
    ("cublasLt*Create", &[(0, Handle)]),
    // cuDNN
    ("cudnnCreate*", &[(0, Handle)]),
    ("cudnnGetStream", &[(1, Zero(8))]),
    ("cudnnDropoutGetStatesSize", &[(1, Size(1 << 20))]),
    ("cudnnGetConvolution*Algorithm_v7", &[(6, Int(1)), (7, PERFORMANCE)]),
    ("cudnnFindConvolution*AlgorithmEx", &[(9, Int(1)), (10, PERFORMANCE)]),
    ("cudnnGetConvolution*WorkspaceSize", &[(6, Size(0))]),
    ("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", &[(8, Size(0))]),
    ("cudnnGetBatchNormalizationBackwardExWorkspaceSize", &[(10, Size(0))]),
    ("cudnnGetBatchNormalizationTrainingExReserveSpaceSize", &[(5, Size(0))]),
    ("cudnnGetCTCLossWorkspaceSize_v8", &[(5, Size(0))]),
    ("cudnnGetCTCLossWorkspaceSize", &[(8, Size(0))]),
    // cuFFT: a plan is a number
    ("cufftCreate", &[(0, Int(1))]),
    ("cufftPlan*", &[(0, Int(1))]),
    ("cufftXtMakePlanMany", &[(12, Size(0))]),
    ("cufftMakePlanMany*", &[(11, Size(0))]),
    ("cufftGetSize", &[(1, Size(0))]),
    ("cufftGetVersion", &[(0, Int(12000))]),
    ("curandCreateGenerator*", &[(0, Handle)]),
    ("cusolverDnCreate*", &[(0, Handle)]),
    // cuSOLVER: the generic ones first, bytes on the device and on the host; then those of one number type, a
    // length
    ("cusolverDnXgeqrf_bufferSize", &[(10, Size(0)), (11, Size(0))]),
    ("cusolverDnXpotrf_bufferSize", &[(8, Size(0)), (9, Size(0))]),
    ("cusolverDnXsyev*_bufferSize", &[(11, Size(0)), (12, Size(0))]),
    ("cusolverDnXgeev_bufferSize", &[(17, Size(0)), (18, Size(0))]),
    ("cusolverDnXsytrs_bufferSize", &[(11, Size(0)), (12, Size(0))]),
    ("cusolverDn?getrf_bufferSize", &[(5, Int(0))]),
    ("cusolverDn?potrf_bufferSize", &[(5, Int(0))]),
    ("cusolverDn?geqrf_bufferSize", &[(5, Int(0))]),
    ("cusolverDn?sytrf_bufferSize", &[(4, Int(0))]),
    ("cusolverDn?gesvd_bufferSize", &[(3, Int(0))]),
    ("cusolverDn?gesvdj_bufferSize", &[(12, Int(0))]),
    ("cusolverDn?gesvdjBatched_bufferSize", &[(11, Int(0))]),
    ("cusolverDn?gesvdaStridedBatched_bufferSize", &[(16, Int(0))]),
    ("cusolverDn???evd_bufferSize", &[(7, Int(0))]),
    ("cusolverDn???evj*_bufferSize", &[(7, Int(0))]),
    ("cusolverDn???gqr_bufferSize", &[(7, Int(0))]),
    ("cusolverDn???mqr_bufferSize", &[(11, Int(0))]),
    // cuSPARSE
    ("cusparseCreateIdentityPermutation", &[]),
    ("cusparseCreate*", &[(0, Handle)]),
    ("cusparseSp*_createDescr", &[(0, Handle)]),
    ("cusparseSpMV_bufferSize", &[(9, Size(0))]),
    ("cusparseSpSV_bufferSize", &[(9, Size(0))]),
    ("cusparseSpMM_bufferSize", &[(10, Size(0))]),
    ("cusparseSpSM_bufferSize", &[(10, Size(0))]),
    ("cusparseSDDMM_bufferSize", &[(10, Size(0))]),
    ("cusparseSpGEMM_workEstimation", &[(11, Size(0))]),
    ("cusparseSpGEMM_compute", &[(11, Size(0))]),
    ("cusparseSpMatGetSize", &[(1, Size(0)), (2, Size(0)), (3, Size(0))]),
    ("cusparse?bsrsv2_bufferSize", &[(11, Int(0))]),
    ("cusparse?bsrsm2_bufferSize", &[(13, Int(0))]),
    ("cusparse?csrgeam2_bufferSizeExt", &[(19, Size(0))]),
    ("cusparseXcsrgeam2Nnz", &[(13, Int(0))]),
    ("cusparseX*sort_bufferSizeExt", &[(6, Size(0))]),
    ("cusparseX*_zeroPivot", &[(2, Int(-1))]),
    ("cusparseGetVersion", &[(1, Int(12000))]),
    ("cusparseLtMatmulGetWorkspace", &[(2, Size(0))]),
    ("cusparseLtMatmulAlgGetAttribute", &[(3, Int(0))]),
    ("cusparseLtSpMMACompressedSize*", &[(2, Size(0)), (3, Size(0))]),
    // NCCL, NVRTC, nvJitLink
    ("ncclCommRegister", &[(3, Handle)]),
    ("ncclCommWindowRegister", &[(3, Handle)]),
    ("ncclRedOpCreatePreMulSum", &[(0, Int(5))]),
    ("nvrtcCreateProgram", &[(0, Handle)]),
    ("*nvJitLinkCreate*", &[(0, Handle)]),
    ("*nvJitLinkGet*Size*", &[(1, Size(0))]),
    // CUPTI
    ("cuptiSubscribe", &[(0, Handle)]),
    ("cuptiGetResultString", &[(1, Text)]),
    ("cuptiGetTimestamp", &[(0, Size(0))]),
    ("cuptiGetDeviceId", &[(1, Int(0))]),
    ("cuptiActivityGetNumDroppedRecords", &[(2, Size(0))]),
    ("cuptiActivityPopExternalCorrelationId", &[(1, Size(0))]),
    ("cuptiEventGetIdFromName", &[(2, Int(0))]),
    ("cuptiMetricGetIdFromName", &[(2, Int(0))]),
    ("cuptiMetricGetNumEvents", &[(1, Int(0))]),
    ("cuptiMetricEnumEvents", &[(1, Size(0))]),
    ("cuptiEventGroupSetsCreate", &[(3, Handle)]),
    // cuFile, NVSHMEM
    ("cuFileHandleRegister", &[(0, Handle)]),
    ("nvshmem_info_get_version", &[(0, Int(0)), (1, Int(0))]),
];

pub fn of(name: &str) -> Outputs {
    if returns_text(name) {
        return &[];
    }
    OUTPUTS
        .iter()
        .find(|(pattern, _)| fits(pattern.as_bytes(), name.as_bytes()))
        .map_or(&[], |(_, outputs)| outputs)
}

pub fn returns_text(name: &str) -> bool {
    ["ErrorString", "StatusString", "ErrorName", "LastError"].iter().any(|end| name.ends_with(end))
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|skip| fits(rest, &name[skip..])),
        ([b'?', rest @ ..], [_, after @ ..]) => fits(rest, after),
        ([letter, rest @ ..], [first, after @ ..]) => letter == first && fits(rest, after),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fitting_pattern_counts() {
        assert_eq!(of("cudnnGetCTCLossWorkspaceSize_v8"), [(5, Size(0))]);
        assert_eq!(of("cudnnGetCTCLossWorkspaceSize"), [(8, Size(0))]);
        assert_eq!(of("cusparseCreateIdentityPermutation"), []);
        assert_eq!(of("cusolverDnZheevj_bufferSize"), [(7, Int(0))]);
        assert_eq!(of("cusolverDnSsyevjBatched_bufferSize"), [(7, Int(0))]);
        assert_eq!(of("cusolverDnXsyevBatched_bufferSize"), [(11, Size(0)), (12, Size(0))]);
        assert_eq!(of("cusolverDnXsyevd_bufferSize"), [(11, Size(0)), (12, Size(0))]);
        assert_eq!(of("cublasSgemm_v2"), []);
    }
}
