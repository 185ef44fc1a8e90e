//! The names and texts of error codes.

use std::ffi::CStr;

type Text = (i32, &'static CStr, &'static CStr);

pub fn of(code: i32) -> (&'static CStr, &'static CStr) {
    match TEXTS.binary_search_by_key(&code, |text| text.0) {
        Ok(at) => (TEXTS[at].1, TEXTS[at].2),
        Err(_) => (c"unrecognized error code", c"unrecognized error code"),
    }
}

#[rustfmt::skip]
static TEXTS: &[Text] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (5, c"cudaErrorProfilerDisabled", c"profiler disabled while using external profiling tool"),
    (9, c"cudaErrorInvalidConfiguration", c"invalid configuration argument"),
    (12, c"cudaErrorInvalidPitchValue", c"invalid pitch argument"),
    (13, c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    (16, c"cudaErrorInvalidHostPointer", c"invalid host pointer"),
    (17, c"cudaErrorInvalidDevicePointer", c"invalid device pointer"),
    (18, c"cudaErrorInvalidTexture", c"invalid texture reference"),
    (20, c"cudaErrorInvalidChannelDescriptor", c"invalid channel descriptor"),
    (21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    (35, c"cudaErrorInsufficientDriver", c"CUDA driver version is insufficient for CUDA runtime version"),
    (36, c"cudaErrorCallRequiresNewerDriver", c"API call is not supported in the installed CUDA driver"),
    (46, c"cudaErrorDevicesUnavailable", c"CUDA-capable device(s) is/are busy or unavailable"),
    (49, c"cudaErrorIncompatibleDriverContext", c"incompatible driver context"),
    (52, c"cudaErrorMissingConfiguration", c"__global__ function call is not configured"),
    (98, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (127, c"cudaErrorStartupFailure", c"startup failure in cuda runtime"),
    (200, c"cudaErrorInvalidKernelImage", c"device kernel image is invalid"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (205, c"cudaErrorMapBufferObjectFailed", c"mapping of buffer object failed"),
    (206, c"cudaErrorUnmapBufferObjectFailed", c"unmapping of buffer object failed"),
    (209, c"cudaErrorNoKernelImageForDevice", c"no kernel image is available for execution on the device"),
    (211, c"cudaErrorNotMapped", c"resource not mapped"),
    (214, c"cudaErrorECCUncorrectable", c"uncorrectable ECC error encountered"),
    (215, c"cudaErrorUnsupportedLimit", c"limit is not supported on this architecture"),
    (216, c"cudaErrorDeviceAlreadyInUse", c"exclusive-thread device already in use by a different thread"),
    (217, c"cudaErrorPeerAccessUnsupported", c"peer access is not supported between these two devices"),
    (218, c"cudaErrorInvalidPtx", c"a PTX JIT compilation failed"),
    (300, c"cudaErrorInvalidSource", c"device kernel image is invalid"),
    (301, c"cudaErrorFileNotFound", c"file not found"),
    (302, c"cudaErrorSharedObjectSymbolNotFound", c"shared object symbol not found"),
    (303, c"cudaErrorSharedObjectInitFailed", c"shared object initialization failed"),
    (304, c"cudaErrorOperatingSystem", c"OS call failed or operation not supported on this OS"),
    (400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, c"cudaErrorIllegalState", c"the operation cannot be performed in the present state"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered"),
    (701, c"cudaErrorLaunchOutOfResources", c"too many resources requested for launch"),
    (702, c"cudaErrorLaunchTimeout", c"the launch timed out and was terminated"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access is already enabled"),
    (705, c"cudaErrorPeerAccessNotEnabled", c"peer access has not been enabled"),
    (708, c"cudaErrorSetOnActiveProcess", c"cannot set while device is active in this process"),
    (709, c"cudaErrorContextIsDestroyed", c"context is destroyed"),
    (710, c"cudaErrorAssert", c"device-side assert triggered"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered", c"part or all of the requested memory range is already mapped"),
    (713, c"cudaErrorHostMemoryNotRegistered", c"pointer does not correspond to a registered memory region"),
    (716, c"cudaErrorMisalignedAddress", c"misaligned address"),
    (719, c"cudaErrorLaunchFailure", c"unspecified launch failure"),
    (720, c"cudaErrorCooperativeLaunchTooLarge", c"too many blocks in cooperative launch"),
    (800, c"cudaErrorNotPermitted", c"operation not permitted"),
    (801, c"cudaErrorNotSupported", c"operation not supported"),
    (802, c"cudaErrorSystemNotReady", c"system not yet initialized"),
    (803, c"cudaErrorSystemDriverMismatch", c"system has unsupported display driver / cuda driver combination"),
    (900, c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing"),
    (901, c"cudaErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture"),
    (902, c"cudaErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences"),
    (903, c"cudaErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began"),
    (904, c"cudaErrorStreamCaptureUnjoined", c"capturing stream has unjoined work"),
    (905, c"cudaErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream"),
    (906, c"cudaErrorStreamCaptureImplicit", c"operation would make the legacy stream depend on a capturing blocking stream"),
    (907, c"cudaErrorCapturedEvent", c"operation not permitted on an event last recorded in a capturing stream"),
    (908, c"cudaErrorStreamCaptureWrongThread", c"attempt to terminate a thread-local capture sequence from another thread"),
    (909, c"cudaErrorTimeout", c"wait operation timed out"),
    (910, c"cudaErrorGraphExecUpdateFailure", c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"),
    (999, c"cudaErrorUnknown", c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_so_that_the_search_finds_them() {
        assert!(TEXTS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(of(2), (c"cudaErrorMemoryAllocation", c"out of memory"));
        assert_eq!(of(-1).0, c"unrecognized error code");
    }
}
