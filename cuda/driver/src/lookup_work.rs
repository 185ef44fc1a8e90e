//! The rows of `cuGetProcAddress` for everything but memory: by the version that introduced them.

use crate::attributes::*;
use crate::capture::*;
use crate::context::*;
use crate::device::*;
use crate::error::{cuGetErrorName, cuGetErrorString};
use crate::event::*;
use crate::exec::*;
use crate::function::*;
use crate::graph::*;
use crate::graph_memory::*;
use crate::green::*;
use crate::launch::*;
use crate::library::*;
use crate::linker::*;
use crate::lookup::{Row, rows};
use crate::module::*;
use crate::node::*;
use crate::occupancy::*;
use crate::primary::*;
use crate::stream::*;
use crate::stream_ops::*;
use crate::texture::*;
use crate::unsupported::*;

pub static WORK: &[Row] = rows! {
    2000: cuInit cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceComputeCapability cuDeviceGetProperties
        cuDeviceGetAttribute cuCtxGetDevice cuCtxSynchronize cuModuleLoad cuModuleLoadData cuModuleLoadFatBinary
        cuModuleUnload cuModuleGetFunction cuStreamCreate cuStreamQuery cuStreamSynchronize cuEventCreate
        cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime;
    2010: cuModuleLoadDataEx;
    2020: cuDriverGetVersion cuFuncGetAttribute;
    3000: cuFuncSetCacheConfig cuGetExportTable;
    3010: cuCtxSetLimit cuCtxGetLimit;
    3020: cuDeviceTotalMem_v2 cuCtxCreate_v2 cuCtxGetCacheConfig cuCtxSetCacheConfig cuCtxGetApiVersion
        cuModuleGetGlobal_v2 cuStreamWaitEvent;
    4000: cuCtxDestroy_v2 cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxGetCurrent
        cuStreamDestroy_v2 cuEventDestroy_v2 cuLaunchKernel cuDeviceCanAccessPeer cuCtxEnablePeerAccess
        cuCtxDisablePeerAccess cuProfilerInitialize cuProfilerStart cuProfilerStop;
    4010: cuDeviceGetByPCIBusId cuDeviceGetPCIBusId;
    4020: cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuFuncSetSharedMemConfig;
    5000: cuStreamAddCallback cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc
        cuTexObjectGetTextureDesc cuTexObjectGetResourceViewDesc cuSurfObjectCreate cuSurfObjectDestroy
        cuSurfObjectGetResourceDesc;
    5050: cuCtxGetStreamPriorityRange cuStreamCreateWithPriority cuStreamGetPriority cuStreamGetFlags
        cuLinkComplete cuLinkDestroy;
    6000: cuGetErrorName cuGetErrorString cuStreamAttachMemAsync;
    6050: cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuOccupancyMaxPotentialBlockSize;
    7000: cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuDevicePrimaryCtxSetFlags
        cuDevicePrimaryCtxGetState cuCtxGetFlags cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        cuOccupancyMaxPotentialBlockSizeWithFlags
        cuStreamQuery_ptsz cuStreamSynchronize_ptsz cuStreamWaitEvent_ptsz cuStreamAddCallback_ptsz
        cuStreamAttachMemAsync_ptsz cuStreamGetPriority_ptsz cuStreamGetFlags_ptsz cuEventRecord_ptsz
        cuLaunchKernel_ptsz;
    8000: cuDeviceGetP2PAttribute cuStreamWriteValue32 cuStreamWriteValue32_ptsz cuStreamWaitValue32
        cuStreamWaitValue32_ptsz cuStreamBatchMemOp cuStreamBatchMemOp_ptsz;
    9000: cuFuncSetAttribute cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz cuStreamWriteValue64
        cuStreamWriteValue64_ptsz cuStreamWaitValue64 cuStreamWaitValue64_ptsz
        cuLaunchCooperativeKernelMultiDevice;
    9020: cuDeviceGetUuid cuStreamGetCtx cuStreamGetCtx_ptsz;
    10000: cuDeviceGetLuid cuLaunchHostFunc cuLaunchHostFunc_ptsz cuStreamBeginCapture cuStreamBeginCapture_ptsz
        cuStreamEndCapture cuStreamEndCapture_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz cuGraphCreate
        cuGraphDestroy cuGraphClone cuGraphNodeFindInClone cuGraphNodeGetType cuGraphGetNodes cuGraphGetRootNodes
        cuGraphGetEdges cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes cuGraphAddDependencies
        cuGraphRemoveDependencies cuGraphDestroyNode cuGraphAddKernelNode cuGraphKernelNodeGetParams
        cuGraphKernelNodeSetParams cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams
        cuGraphAddMemsetNode cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphAddHostNode
        cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph
        cuGraphAddEmptyNode cuGraphInstantiate cuGraphLaunch cuGraphLaunch_ptsz cuGraphExecDestroy
        cuImportExternalSemaphore cuDestroyExternalSemaphore
        cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz cuWaitExternalSemaphoresAsync
        cuWaitExternalSemaphoresAsync_ptsz;
    10010: cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz cuThreadExchangeStreamCaptureMode
        cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz cuGraphExecKernelNodeSetParams;
    10020: cuDeviceGetNvSciSyncAttributes cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
        cuGraphExecHostNodeSetParams cuGraphExecUpdate cuOccupancyAvailableDynamicSMemPerBlock;
    11000: cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2
        cuCtxResetPersistingL2Cache cuFuncGetModule cuStreamCopyAttributes cuStreamCopyAttributes_ptsz
        cuStreamGetAttribute cuStreamGetAttribute_ptsz cuStreamSetAttribute cuStreamSetAttribute_ptsz
        cuGraphInstantiate_v2 cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute
        cuGraphKernelNodeSetAttribute;
    11010: cuDeviceGetTexture1DLinearMaxWidth cuEventRecordWithFlags cuEventRecordWithFlags_ptsz cuGraphUpload
        cuGraphUpload_ptsz cuGraphAddEventRecordNode cuGraphEventRecordNodeGetEvent
        cuGraphEventRecordNodeSetEvent cuGraphAddEventWaitNode cuGraphEventWaitNodeGetEvent
        cuGraphEventWaitNodeSetEvent cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent
        cuGraphExecEventWaitNodeSetEvent;
    11020: cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool
        cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode;
    11030: cuFlushGPUDirectRDMAWrites cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz
        cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_ptsz cuGraphDebugDotPrint
        cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
        cuGraphReleaseUserObject;
    11040: cuDeviceGetUuid_v2 cuDeviceGetExecAffinitySupport cuCtxCreate_v3 cuCtxGetExecAffinity
        cuGraphInstantiateWithFlags cuGraphAddMemAllocNode cuGraphMemAllocNodeGetParams cuGraphAddMemFreeNode
        cuGraphMemFreeNodeGetParams cuDeviceGraphMemTrim cuDeviceGetGraphMemAttribute
        cuDeviceSetGraphMemAttribute;
    11060: cuLaunchKernelEx cuLaunchKernelEx_ptsz cuGraphNodeSetEnabled cuGraphNodeGetEnabled;
    11070: cuModuleGetLoadingMode cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64_v2
        cuStreamWriteValue64_v2_ptsz cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64_v2
        cuStreamWaitValue64_v2_ptsz cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz cuGraphAddBatchMemOpNode
        cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters;
    12000: cuCtxGetId cuStreamGetId cuStreamGetId_ptsz cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload
        cuLibraryGetKernel cuLibraryGetModule cuLibraryGetGlobal cuLibraryGetManaged cuLibraryGetUnifiedFunction
        cuKernelGetFunction cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig
        cuGraphAddKernelNode_v2 cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2
        cuGraphExecKernelNodeSetParams_v2 cuGraphExecUpdate_v2 cuGraphInstantiateWithParams
        cuGraphInstantiateWithParams_ptsz cuGraphExecGetFlags cuTensorMapEncodeTiled cuTensorMapEncodeIm2col
        cuTensorMapReplaceAddress;
    12010: cuCtxSetFlags;
    12020: cuGraphAddNode cuGraphExecNodeSetParams;
    12030: cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz cuStreamUpdateCaptureDependencies_v2
        cuStreamUpdateCaptureDependencies_v2_ptsz cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz
        cuGraphAddNode_v2 cuGraphGetEdges_v2 cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2
        cuGraphAddDependencies_v2 cuGraphRemoveDependencies_v2 cuGraphConditionalHandleCreate cuFuncGetName
        cuKernelGetName;
    12040: cuModuleGetFunctionCount cuModuleEnumerateFunctions cuLibraryGetKernelCount cuLibraryEnumerateKernels
        cuFuncGetParamInfo cuKernelGetParamInfo cuFuncIsLoaded cuFuncLoad cuGreenCtxCreate cuGreenCtxDestroy
        cuCtxFromGreenCtx cuDeviceGetDevResource cuCtxGetDevResource cuGreenCtxGetDevResource
        cuDevSmResourceSplitByCount cuDevResourceGenerateDesc cuGreenCtxRecordEvent cuGreenCtxWaitEvent
        cuStreamGetGreenCtx;
    12050: cuCtxCreate_v4 cuCtxRecordEvent cuCtxWaitEvent cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz
        cuKernelGetLibrary cuGreenCtxStreamCreate;
    12080: cuStreamGetDevice cuStreamGetDevice_ptsz cuEventElapsedTime_v2 cuTensorMapEncodeIm2colWide;
    13000: cuCtxGetDevice_v2 cuCtxSynchronize_v2;
};
