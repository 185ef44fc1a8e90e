//! The functions whose whole work is to check their handles, because what they change does not matter here:
//! kernels do not run, everything in a stream is complete at once, and all managed memory is always
//! everywhere. And the documented functions that only refuse.
//!
//! A line has the arguments that are looked at, the check, and the functions that make it. In the C calling
//! convention the arguments after those need not be declared.

use crate::abi::pointers::{Addr, Handle, Out, Stream};
use crate::abi::status::*;

macro_rules! answers {
    ($($head:tt $check:expr => $($name:ident $([$variant:ident])?)+;)*) => {$($(
        driver_api! { fn $name $head $([$variant])? { $check.map(drop) } }
    )+)*};
}

// Success, once the check has passed.
answers! {
    (driver;) driver.current() =>
        cuCtxSetSharedMemConfig cuCtxResetPersistingL2Cache cuFlushGPUDirectRDMAWrites cuProfilerStart cuProfilerStop;
    (driver; function: Handle) driver.kernel(function) =>
        cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuFuncLoad;
    (driver; kernel: Handle, _config: i32, device: i32) driver.device(device).map(drop).and(driver.kernel(kernel)) =>
        cuKernelSetCacheConfig;
    (driver; address: Addr, bytes: usize) driver.covered(address, bytes as u64).then_some(()).ok_or(INVALID_VALUE) =>
        cuMemAdvise cuMemAdvise_v2 cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemPrefetchAsync_v2
        cuMemPrefetchAsync_v2_ptsz;
    (driver; stream: Stream) driver.stream_owner(stream) =>
        cuStreamSetAttribute [cuStreamSetAttribute_ptsz];
    (driver; to: Stream, from: Stream) driver.stream_owner(to).and(driver.stream_owner(from)) =>
        cuStreamCopyAttributes [cuStreamCopyAttributes_ptsz];
    (driver; stream: Stream, address: Addr)
        driver.stream_owner(stream).and(driver.find(address).ok_or(INVALID_VALUE)) =>
        cuStreamAttachMemAsync [cuStreamAttachMemAsync_ptsz];
    (driver; _context: Handle, event: Handle) driver.event(event) =>
        cuCtxWaitEvent;
    (driver; green: Handle, event: Handle) driver.green(green).map(drop).and(driver.event(event)) =>
        cuGreenCtxWaitEvent;
    (driver; exec: Handle, stream: Stream) driver.stream_owner(stream).and(driver.exec(exec)) =>
        cuGraphUpload [cuGraphUpload_ptsz];
    (driver; node: Handle) driver.graph_of(node) =>
        cuGraphKernelNodeSetAttribute;
    (driver; to: Handle, from: Handle) driver.graph_of(to).map(drop).and(driver.graph_of(from)) =>
        cuGraphKernelNodeCopyAttributes;
    // Changes to one node of an executable graph: the next update of the whole graph brings them.
    (driver; exec: Handle, node: Handle) driver.exec(exec).map(drop).and(driver.graph_of(node)) =>
        cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2 cuGraphExecMemcpyNodeSetParams
        cuGraphExecMemsetNodeSetParams cuGraphExecHostNodeSetParams cuGraphExecChildGraphNodeSetParams
        cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent cuGraphNodeSetEnabled
        cuGraphExecNodeSetParams;
}

const UNSUPPORTED: Res = Err(NOT_SUPPORTED);

// Refusals.
answers! {
    (;) UNSUPPORTED =>
        cuArrayGetPlane cuCtxGetExecAffinity cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes
        cuMemGetHandleForAddressRange cuProfilerInitialize cuLaunchCooperativeKernelMultiDevice
        cuGraphConditionalHandleCreate cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease
        cuGraphRetainUserObject cuGraphReleaseUserObject cuTexObjectGetResourceDesc cuTexObjectGetTextureDesc
        cuTexObjectGetResourceViewDesc cuSurfObjectGetResourceDesc cuImportExternalSemaphore
        cuDestroyExternalSemaphore cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
        cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz;
    // Private tables are not imitated.
    (; table: Out<Handle>) table.put(0).and(UNSUPPORTED).or(UNSUPPORTED) =>
        cuGetExportTable;
    (;) Err::<(), Status>(NOT_FOUND) =>
        cuLibraryGetUnifiedFunction;
    // No kernel's parameters are known.
    (driver; function: Handle) driver.kernel(function).map(drop).and(Err::<(), Status>(INVALID_VALUE)) =>
        cuFuncGetParamInfo cuKernelGetParamInfo;
}
