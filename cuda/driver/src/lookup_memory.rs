//! The rows of `cuGetProcAddress` for memory: by the version that introduced them.

use crate::array::*;
use crate::copy::*;
use crate::copy3d::*;
use crate::external::*;
use crate::fill::*;
use crate::host::*;
use crate::ipc::*;
use crate::linear::*;
use crate::lookup::{Row, rows};
use crate::mipmap::*;
use crate::multicast::*;
use crate::pointer::*;
use crate::pool_share::*;
use crate::poolapi::*;
use crate::sparse::*;
use crate::vmm::*;
use crate::vmm_share::*;

pub static MEMORY: &[Row] = rows! {
    2000: cuMemFreeHost cuArrayDestroy;
    2020: cuMemHostAlloc;
    2030: cuMemHostGetFlags;
    3020: cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemGetInfo_v2 cuMemGetAddressRange_v2 cuMemAllocHost_v2
        cuMemHostGetDevicePointer_v2
        cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyHtoA_v2 cuMemcpyDtoA_v2 cuMemcpyAtoH_v2
        cuMemcpyAtoD_v2 cuMemcpyAtoA_v2 cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2
        cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2
        cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2
        cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2 cuMemsetD2D32_v2
        cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async
        cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArray3DCreate_v2 cuArray3DGetDescriptor_v2;
    4000: cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync
        cuMemHostRegister cuMemHostUnregister cuPointerGetAttribute;
    4010: cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle;
    5000: cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayDestroy;
    6000: cuMemAllocManaged cuPointerSetAttribute;
    6050: cuMemHostRegister_v2;
    7000: cuPointerGetAttributes
        cuMemcpyHtoD_v2_ptds cuMemcpyDtoH_v2_ptds cuMemcpyDtoD_v2_ptds cuMemcpyHtoA_v2_ptds cuMemcpyDtoA_v2_ptds
        cuMemcpyAtoH_v2_ptds cuMemcpyAtoD_v2_ptds cuMemcpyAtoA_v2_ptds cuMemcpy2D_v2_ptds
        cuMemcpy2DUnaligned_v2_ptds cuMemcpy3D_v2_ptds cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2_ptsz
        cuMemcpyDtoDAsync_v2_ptsz cuMemcpyHtoAAsync_v2_ptsz cuMemcpyAtoHAsync_v2_ptsz cuMemcpy2DAsync_v2_ptsz
        cuMemcpy3DAsync_v2_ptsz cuMemsetD8_v2_ptds cuMemsetD16_v2_ptds cuMemsetD32_v2_ptds cuMemsetD2D8_v2_ptds
        cuMemsetD2D16_v2_ptds cuMemsetD2D32_v2_ptds cuMemsetD8Async_ptsz cuMemsetD16Async_ptsz
        cuMemsetD32Async_ptsz cuMemsetD2D8Async_ptsz cuMemsetD2D16Async_ptsz cuMemsetD2D32Async_ptsz
        cuMemcpy_ptds cuMemcpyAsync_ptsz cuMemcpyPeer_ptds cuMemcpyPeerAsync_ptsz cuMemcpy3DPeer_ptds
        cuMemcpy3DPeerAsync_ptsz;
    8000: cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemAdvise cuMemRangeGetAttribute cuMemRangeGetAttributes;
    10000: cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
        cuDestroyExternalMemory;
    10020: cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess
        cuMemGetAccess cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemGetAllocationGranularity
        cuMemGetAllocationPropertiesFromHandle;
    11000: cuMemRetainAllocationHandle cuIpcOpenMemHandle_v2;
    11010: cuArrayGetSparseProperties cuMipmappedArrayGetSparseProperties cuMemMapArrayAsync
        cuMemMapArrayAsync_ptsz;
    11020: cuMemAllocAsync cuMemAllocAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz cuMemAllocFromPoolAsync
        cuMemAllocFromPoolAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute
        cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolGetAccess cuMemPoolExportToShareableHandle
        cuMemPoolImportFromShareableHandle cuMemPoolExportPointer cuMemPoolImportPointer cuArrayGetPlane;
    11060: cuArrayGetMemoryRequirements cuMipmappedArrayGetMemoryRequirements;
    11070: cuMemGetHandleForAddressRange;
    12010: cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastBindAddr cuMulticastUnbind
        cuMulticastGetGranularity;
    12020: cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz cuMemAdvise_v2;
    13000: cuMemGetDefaultMemPool cuMemGetMemPool cuMemSetMemPool;
    13010: cuMulticastBindMem_v2 cuMulticastBindAddr_v2;
};
