//! The table of the driver's functions: their exported names, by the CUDA version that introduced them.
//!
//! A function that is not in this table does not exist for `cuGetProcAddress`, nor for `SIMGPU_FAIL`.

/// Hands the table to a macro.
macro_rules! driver_functions {
    ($then:ident) => {
        $then! {
            2000: cuMemFreeHost cuArrayDestroy cuInit cuDeviceGet cuDeviceGetCount cuDeviceGetName
                cuDeviceComputeCapability cuDeviceGetProperties cuDeviceGetAttribute cuCtxGetDevice
                cuCtxSynchronize cuModuleLoad cuModuleLoadData cuModuleLoadFatBinary cuModuleUnload
                cuModuleGetFunction cuStreamCreate cuStreamQuery cuStreamSynchronize cuEventCreate
                cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime;
            2010: cuModuleLoadDataEx;
            2020: cuMemHostAlloc cuDriverGetVersion cuFuncGetAttribute;
            2030: cuMemHostGetFlags;
            3000: cuFuncSetCacheConfig cuGetExportTable;
            3010: cuCtxSetLimit cuCtxGetLimit;
            3020: cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemGetInfo_v2 cuMemGetAddressRange_v2
                cuMemAllocHost_v2 cuMemHostGetDevicePointer_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2
                cuMemcpyHtoA_v2 cuMemcpyDtoA_v2 cuMemcpyAtoH_v2 cuMemcpyAtoD_v2 cuMemcpyAtoA_v2 cuMemcpy2D_v2
                cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2
                cuMemcpyDtoDAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2 cuMemcpy2DAsync_v2
                cuMemcpy3DAsync_v2 cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2
                cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async
                cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async cuArrayCreate_v2
                cuArrayGetDescriptor_v2 cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuDeviceTotalMem_v2
                cuCtxCreate_v2 cuCtxGetCacheConfig cuCtxSetCacheConfig cuCtxGetApiVersion cuModuleGetGlobal_v2
                cuStreamWaitEvent;
            4000: cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync
                cuMemHostRegister cuMemHostUnregister cuPointerGetAttribute cuCtxDestroy_v2
                cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxGetCurrent cuStreamDestroy_v2
                cuEventDestroy_v2 cuLaunchKernel cuDeviceCanAccessPeer cuCtxEnablePeerAccess
                cuCtxDisablePeerAccess cuProfilerInitialize cuProfilerStart cuProfilerStop;
            4010: cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcCloseMemHandle cuIpcGetEventHandle
                cuIpcOpenEventHandle cuDeviceGetByPCIBusId cuDeviceGetPCIBusId;
            4020: cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuFuncSetSharedMemConfig;
            5000: cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayDestroy cuStreamAddCallback
                cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetTextureDesc
                cuTexObjectGetResourceViewDesc cuSurfObjectCreate cuSurfObjectDestroy
                cuSurfObjectGetResourceDesc;
            5050: cuCtxGetStreamPriorityRange cuStreamCreateWithPriority cuStreamGetPriority cuStreamGetFlags
                cuLinkComplete cuLinkDestroy;
            6000: cuMemAllocManaged cuPointerSetAttribute cuGetErrorName cuGetErrorString
                cuStreamAttachMemAsync;
            6050: cuMemHostRegister_v2 cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2
                cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialBlockSize;
            7000: cuPointerGetAttributes cuMemcpyHtoD_v2_ptds cuMemcpyDtoH_v2_ptds cuMemcpyDtoD_v2_ptds
                cuMemcpyHtoA_v2_ptds cuMemcpyDtoA_v2_ptds cuMemcpyAtoH_v2_ptds cuMemcpyAtoD_v2_ptds
                cuMemcpyAtoA_v2_ptds cuMemcpy2D_v2_ptds cuMemcpy2DUnaligned_v2_ptds cuMemcpy3D_v2_ptds
                cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoDAsync_v2_ptsz
                cuMemcpyHtoAAsync_v2_ptsz cuMemcpyAtoHAsync_v2_ptsz cuMemcpy2DAsync_v2_ptsz
                cuMemcpy3DAsync_v2_ptsz cuMemsetD8_v2_ptds cuMemsetD16_v2_ptds cuMemsetD32_v2_ptds
                cuMemsetD2D8_v2_ptds cuMemsetD2D16_v2_ptds cuMemsetD2D32_v2_ptds cuMemsetD8Async_ptsz
                cuMemsetD16Async_ptsz cuMemsetD32Async_ptsz cuMemsetD2D8Async_ptsz cuMemsetD2D16Async_ptsz
                cuMemsetD2D32Async_ptsz cuMemcpy_ptds cuMemcpyAsync_ptsz cuMemcpyPeer_ptds
                cuMemcpyPeerAsync_ptsz cuMemcpy3DPeer_ptds cuMemcpy3DPeerAsync_ptsz cuDevicePrimaryCtxRetain
                cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuDevicePrimaryCtxSetFlags
                cuDevicePrimaryCtxGetState cuCtxGetFlags cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
                cuOccupancyMaxPotentialBlockSizeWithFlags cuStreamQuery_ptsz cuStreamSynchronize_ptsz
                cuStreamWaitEvent_ptsz cuStreamAddCallback_ptsz cuStreamAttachMemAsync_ptsz
                cuStreamGetPriority_ptsz cuStreamGetFlags_ptsz cuEventRecord_ptsz cuLaunchKernel_ptsz;
            8000: cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemAdvise cuMemRangeGetAttribute
                cuMemRangeGetAttributes cuDeviceGetP2PAttribute cuStreamWriteValue32 cuStreamWriteValue32_ptsz
                cuStreamWaitValue32 cuStreamWaitValue32_ptsz cuStreamBatchMemOp cuStreamBatchMemOp_ptsz;
            9000: cuFuncSetAttribute cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz
                cuStreamWriteValue64 cuStreamWriteValue64_ptsz cuStreamWaitValue64 cuStreamWaitValue64_ptsz
                cuLaunchCooperativeKernelMultiDevice;
            9020: cuDeviceGetUuid cuStreamGetCtx cuStreamGetCtx_ptsz;
            10000: cuImportExternalMemory cuExternalMemoryGetMappedBuffer
                cuExternalMemoryGetMappedMipmappedArray cuDestroyExternalMemory cuDeviceGetLuid
                cuLaunchHostFunc cuLaunchHostFunc_ptsz cuStreamBeginCapture cuStreamBeginCapture_ptsz
                cuStreamEndCapture cuStreamEndCapture_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz
                cuGraphCreate cuGraphDestroy cuGraphClone cuGraphNodeFindInClone cuGraphNodeGetType
                cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges cuGraphNodeGetDependencies
                cuGraphNodeGetDependentNodes cuGraphAddDependencies cuGraphRemoveDependencies
                cuGraphDestroyNode cuGraphAddKernelNode cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams
                cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams
                cuGraphAddMemsetNode cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphAddHostNode
                cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphAddChildGraphNode
                cuGraphChildGraphNodeGetGraph cuGraphAddEmptyNode cuGraphInstantiate cuGraphLaunch
                cuGraphLaunch_ptsz cuGraphExecDestroy cuImportExternalSemaphore cuDestroyExternalSemaphore
                cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
                cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz;
            10010: cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz cuThreadExchangeStreamCaptureMode
                cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz cuGraphExecKernelNodeSetParams;
            10020: cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap
                cuMemSetAccess cuMemGetAccess cuMemExportToShareableHandle cuMemImportFromShareableHandle
                cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle
                cuDeviceGetNvSciSyncAttributes cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
                cuGraphExecHostNodeSetParams cuGraphExecUpdate cuOccupancyAvailableDynamicSMemPerBlock;
            11000: cuMemRetainAllocationHandle cuIpcOpenMemHandle_v2 cuDevicePrimaryCtxRelease_v2
                cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuCtxResetPersistingL2Cache
                cuFuncGetModule cuStreamCopyAttributes cuStreamCopyAttributes_ptsz cuStreamGetAttribute
                cuStreamGetAttribute_ptsz cuStreamSetAttribute cuStreamSetAttribute_ptsz cuGraphInstantiate_v2
                cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute;
            11010: cuArrayGetSparseProperties cuMipmappedArrayGetSparseProperties cuMemMapArrayAsync
                cuMemMapArrayAsync_ptsz cuDeviceGetTexture1DLinearMaxWidth cuEventRecordWithFlags
                cuEventRecordWithFlags_ptsz cuGraphUpload cuGraphUpload_ptsz cuGraphAddEventRecordNode
                cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent cuGraphAddEventWaitNode
                cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphExecChildGraphNodeSetParams
                cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent;
            11020: cuMemAllocAsync cuMemAllocAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz
                cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemPoolCreate cuMemPoolDestroy
                cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemPoolSetAccess
                cuMemPoolGetAccess cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle
                cuMemPoolExportPointer cuMemPoolImportPointer cuArrayGetPlane cuDeviceGetDefaultMemPool
                cuDeviceGetMemPool cuDeviceSetMemPool cuGraphAddExternalSemaphoresSignalNode
                cuGraphAddExternalSemaphoresWaitNode;
            11030: cuFlushGPUDirectRDMAWrites cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz
                cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_ptsz cuGraphDebugDotPrint
                cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
                cuGraphReleaseUserObject cuGetProcAddress;
            11040: cuDeviceGetUuid_v2 cuDeviceGetExecAffinitySupport cuCtxCreate_v3 cuCtxGetExecAffinity
                cuGraphInstantiateWithFlags cuGraphAddMemAllocNode cuGraphMemAllocNodeGetParams
                cuGraphAddMemFreeNode cuGraphMemFreeNodeGetParams cuDeviceGraphMemTrim
                cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute;
            11060: cuArrayGetMemoryRequirements cuMipmappedArrayGetMemoryRequirements cuLaunchKernelEx
                cuLaunchKernelEx_ptsz cuGraphNodeSetEnabled cuGraphNodeGetEnabled;
            11070: cuMemGetHandleForAddressRange cuModuleGetLoadingMode cuStreamWriteValue32_v2
                cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz
                cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64_v2
                cuStreamWaitValue64_v2_ptsz cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz
                cuGraphAddBatchMemOpNode cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters;
            12000: cuCtxGetId cuStreamGetId cuStreamGetId_ptsz cuLibraryLoadData cuLibraryLoadFromFile
                cuLibraryUnload cuLibraryGetKernel cuLibraryGetModule cuLibraryGetGlobal cuLibraryGetManaged
                cuLibraryGetUnifiedFunction cuKernelGetFunction cuKernelGetAttribute cuKernelSetAttribute
                cuKernelSetCacheConfig cuGraphAddKernelNode_v2 cuGraphKernelNodeGetParams_v2
                cuGraphKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2 cuGraphExecUpdate_v2
                cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphExecGetFlags
                cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuTensorMapReplaceAddress cuGetProcAddress_v2;
            12010: cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastBindAddr
                cuMulticastUnbind cuMulticastGetGranularity cuCtxSetFlags;
            12020: cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz cuMemAdvise_v2 cuGraphAddNode
                cuGraphExecNodeSetParams;
            12030: cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz
                cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz
                cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuGraphAddNode_v2
                cuGraphGetEdges_v2 cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2
                cuGraphAddDependencies_v2 cuGraphRemoveDependencies_v2 cuGraphConditionalHandleCreate
                cuFuncGetName cuKernelGetName;
            12040: cuModuleGetFunctionCount cuModuleEnumerateFunctions cuLibraryGetKernelCount
                cuLibraryEnumerateKernels cuFuncGetParamInfo cuKernelGetParamInfo cuFuncIsLoaded cuFuncLoad
                cuGreenCtxCreate cuGreenCtxDestroy cuCtxFromGreenCtx cuDeviceGetDevResource
                cuCtxGetDevResource cuGreenCtxGetDevResource cuDevSmResourceSplitByCount
                cuDevResourceGenerateDesc cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuStreamGetGreenCtx;
            12050: cuCtxCreate_v4 cuCtxRecordEvent cuCtxWaitEvent cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz
                cuKernelGetLibrary cuGreenCtxStreamCreate;
            12080: cuStreamGetDevice cuStreamGetDevice_ptsz cuEventElapsedTime_v2 cuTensorMapEncodeIm2colWide;
            13000: cuMemGetDefaultMemPool cuMemGetMemPool cuMemSetMemPool cuCtxGetDevice_v2
                cuCtxSynchronize_v2;
            13010: cuMulticastBindMem_v2 cuMulticastBindAddr_v2;
        }
    };
}

macro_rules! names {
    ($($version:literal: $($symbol:ident)*;)*) => { &[$($(stringify!($symbol),)*)*] };
}
static NAMES: &[&str] = driver_functions!(names);

/// Returns a function's name without its version and stream suffixes.
pub fn base(symbol: &str) -> &str {
    let name = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match name.rsplit_once("_v") {
        Some((base, version)) if version.len() == 1 => base,
        _ => name,
    }
}

/// Returns whether a name is an exported function's, or the base of one.
pub fn is_function(name: &str) -> bool {
    NAMES.iter().any(|symbol| *symbol == name || base(symbol) == name)
}
