//! The one list of entry points, and of those that were considered and have no hook. Hooks, look-up, exports
//! and the coverage test are made from it. It knows no code: whoever reads it brings a macro.
//!
//! A row: `id = LIBRARY "name" c"symbol" VERSION PER_THREAD room::hook ["what ends it" …];` The name is what
//! programs ask for and reports print; the symbol is what is exported; VERSION is the CUDA version (1000 ×
//! major + 10 × minor) from which the name means this signature; PER_THREAD: works on the calling thread's
//! default stream.

/// Hands all rows to the macro `$then`.
#[macro_export]
macro_rules! entry_points {
    ($then:ident) => { $then! {
    // ── look-up ────────────────────────────────────────────────────────────────────────────────────────────
    cuGetProcAddress = Driver "cuGetProcAddress" c"cuGetProcAddress" 11030 false proc_address::get_proc_address [];
    cuGetProcAddress_v2 = Driver "cuGetProcAddress" c"cuGetProcAddress_v2" 12000 false proc_address::get_proc_address_v2 [];
    cuGetProcAddress_ptsz = Driver "cuGetProcAddress" c"cuGetProcAddress_ptsz" 11030 true proc_address::get_proc_address [];
    cuGetProcAddress_v2_ptsz = Driver "cuGetProcAddress" c"cuGetProcAddress_v2_ptsz" 12000 true proc_address::get_proc_address_v2 [];
    // ── device memory ──────────────────────────────────────────────────────────────────────────────────────
    cuMemAlloc_v2 = Driver "cuMemAlloc" c"cuMemAlloc_v2" 3020 false device::alloc ["cuMemFree"];
    cuMemAllocPitch_v2 = Driver "cuMemAllocPitch" c"cuMemAllocPitch_v2" 3020 false device::alloc_pitch ["cuMemFree"];
    cuMemAllocManaged = Driver "cuMemAllocManaged" c"cuMemAllocManaged" 6000 false device::alloc_managed ["cuMemFree"];
    cuMemFree_v2 = Driver "cuMemFree" c"cuMemFree_v2" 3020 false device::free [];
    // ── pinned host memory ─────────────────────────────────────────────────────────────────────────────────
    cuMemHostAlloc = Driver "cuMemHostAlloc" c"cuMemHostAlloc" 2020 false pinned_host::host_alloc ["cuMemFreeHost"];
    cuMemAllocHost_v2 = Driver "cuMemAllocHost" c"cuMemAllocHost_v2" 3020 false pinned_host::alloc_host ["cuMemFreeHost"];
    cuMemFreeHost = Driver "cuMemFreeHost" c"cuMemFreeHost" 2000 false pinned_host::free [];
    cuMemHostRegister = Driver "cuMemHostRegister" c"cuMemHostRegister" 4000 false pinned_host::register ["cuMemHostUnregister"];
    cuMemHostRegister_v2 = Driver "cuMemHostRegister" c"cuMemHostRegister_v2" 6050 false pinned_host::register ["cuMemHostUnregister"];
    cuMemHostUnregister = Driver "cuMemHostUnregister" c"cuMemHostUnregister" 4000 false pinned_host::unregister [];
    // ── stream-ordered memory ──────────────────────────────────────────────────────────────────────────────
    cuMemAllocAsync = Driver "cuMemAllocAsync" c"cuMemAllocAsync" 11020 false pool::alloc ["cuMemFreeAsync" "cuMemFree"];
    cuMemAllocAsync_ptsz = Driver "cuMemAllocAsync" c"cuMemAllocAsync_ptsz" 11020 true pool::alloc ["cuMemFreeAsync" "cuMemFree"];
    cuMemAllocFromPoolAsync = Driver "cuMemAllocFromPoolAsync" c"cuMemAllocFromPoolAsync" 11020 false pool::alloc_from_pool ["cuMemFreeAsync" "cuMemFree"];
    cuMemAllocFromPoolAsync_ptsz = Driver "cuMemAllocFromPoolAsync" c"cuMemAllocFromPoolAsync_ptsz" 11020 true pool::alloc_from_pool ["cuMemFreeAsync" "cuMemFree"];
    cuMemFreeAsync = Driver "cuMemFreeAsync" c"cuMemFreeAsync" 11020 false pool::free [];
    cuMemFreeAsync_ptsz = Driver "cuMemFreeAsync" c"cuMemFreeAsync_ptsz" 11020 true pool::free [];
    cuMemPoolCreate = Driver "cuMemPoolCreate" c"cuMemPoolCreate" 11020 false pool::create ["cuMemPoolDestroy"];
    cuMemPoolDestroy = Driver "cuMemPoolDestroy" c"cuMemPoolDestroy" 11020 false pool::destroy [];
    cuMemPoolImportPointer = Driver "cuMemPoolImportPointer" c"cuMemPoolImportPointer" 11020 false external::import_pointer ["cuMemFreeAsync" "cuMemFree"];
    // ── virtual memory management ──────────────────────────────────────────────────────────────────────────
    cuMemAddressReserve = Driver "cuMemAddressReserve" c"cuMemAddressReserve" 10020 false virtual_memory::reserve ["cuMemAddressFree"];
    cuMemAddressFree = Driver "cuMemAddressFree" c"cuMemAddressFree" 10020 false virtual_memory::unreserve [];
    cuMemCreate = Driver "cuMemCreate" c"cuMemCreate" 10020 false virtual_memory::create ["cuMemRelease" "cuMemUnmap"];
    cuMemRelease = Driver "cuMemRelease" c"cuMemRelease" 10020 false virtual_memory::release [];
    cuMemRetainAllocationHandle = Driver "cuMemRetainAllocationHandle" c"cuMemRetainAllocationHandle" 11000 false virtual_memory::retain ["cuMemRelease"];
    cuMemMap = Driver "cuMemMap" c"cuMemMap" 10020 false virtual_memory::map ["cuMemUnmap"];
    cuMemUnmap = Driver "cuMemUnmap" c"cuMemUnmap" 10020 false virtual_memory::unmap [];
    cuMemImportFromShareableHandle = Driver "cuMemImportFromShareableHandle" c"cuMemImportFromShareableHandle" 10020 false external::import_handle ["cuMemRelease"];
    cuMulticastCreate = Driver "cuMulticastCreate" c"cuMulticastCreate" 12010 false external::create_multicast ["cuMemRelease"];
    // ── arrays ─────────────────────────────────────────────────────────────────────────────────────────────
    cuArrayCreate_v2 = Driver "cuArrayCreate" c"cuArrayCreate_v2" 3020 false array::create ["cuArrayDestroy"];
    cuArray3DCreate_v2 = Driver "cuArray3DCreate" c"cuArray3DCreate_v2" 3020 false array::create_3d ["cuArrayDestroy"];
    cuArrayDestroy = Driver "cuArrayDestroy" c"cuArrayDestroy" 2000 false array::destroy [];
    cuMipmappedArrayCreate = Driver "cuMipmappedArrayCreate" c"cuMipmappedArrayCreate" 5000 false array::create_mipmapped ["cuMipmappedArrayDestroy"];
    cuMipmappedArrayDestroy = Driver "cuMipmappedArrayDestroy" c"cuMipmappedArrayDestroy" 5000 false array::destroy [];
    // ── memory of others: another process's, another interface's ───────────────────────────────────────────
    cuIpcOpenMemHandle = Driver "cuIpcOpenMemHandle" c"cuIpcOpenMemHandle" 4010 false external::open_ipc ["cuIpcCloseMemHandle"];
    cuIpcOpenMemHandle_v2 = Driver "cuIpcOpenMemHandle" c"cuIpcOpenMemHandle_v2" 11000 false external::open_ipc ["cuIpcCloseMemHandle"];
    cuIpcCloseMemHandle = Driver "cuIpcCloseMemHandle" c"cuIpcCloseMemHandle" 4010 false external::close_ipc [];
    cuImportExternalMemory = Driver "cuImportExternalMemory" c"cuImportExternalMemory" 10000 false external::import_external ["cuDestroyExternalMemory"];
    cuDestroyExternalMemory = Driver "cuDestroyExternalMemory" c"cuDestroyExternalMemory" 10000 false external::destroy_external [];
    cuExternalMemoryGetMappedBuffer = Driver "cuExternalMemoryGetMappedBuffer" c"cuExternalMemoryGetMappedBuffer" 10000 false external::map_external_buffer ["cuMemFree"];
    cuExternalMemoryGetMappedMipmappedArray = Driver "cuExternalMemoryGetMappedMipmappedArray" c"cuExternalMemoryGetMappedMipmappedArray" 10000 false external::map_external_array ["cuMipmappedArrayDestroy"];
    // ── graphs: an allocation node gives an address when it is added, memory when it is launched ───────────
    cuGraphAddMemAllocNode = Driver "cuGraphAddMemAllocNode" c"cuGraphAddMemAllocNode" 11040 false graph::add_alloc_node [];
    cuGraphAddNode = Driver "cuGraphAddNode" c"cuGraphAddNode" 12020 false graph::add_node [];
    cuGraphAddNode_v2 = Driver "cuGraphAddNode" c"cuGraphAddNode_v2" 12030 false graph::add_node_v2 [];
    cuGraphInstantiate = Driver "cuGraphInstantiate" c"cuGraphInstantiate" 10000 false graph::instantiate [];
    cuGraphInstantiate_v2 = Driver "cuGraphInstantiate" c"cuGraphInstantiate_v2" 11000 false graph::instantiate [];
    cuGraphInstantiateWithFlags = Driver "cuGraphInstantiateWithFlags" c"cuGraphInstantiateWithFlags" 11040 false graph::instantiate_with_flags [];
    cuGraphInstantiateWithParams = Driver "cuGraphInstantiateWithParams" c"cuGraphInstantiateWithParams" 12000 false graph::instantiate_with_params [];
    cuGraphInstantiateWithParams_ptsz = Driver "cuGraphInstantiateWithParams" c"cuGraphInstantiateWithParams_ptsz" 12000 true graph::instantiate_with_params [];
    cuGraphLaunch = Driver "cuGraphLaunch" c"cuGraphLaunch" 10000 false graph::launch ["cuMemFree" "cuMemFreeAsync"];
    cuGraphLaunch_ptsz = Driver "cuGraphLaunch" c"cuGraphLaunch_ptsz" 10000 true graph::launch ["cuMemFree" "cuMemFreeAsync"];
    cuGraphExecDestroy = Driver "cuGraphExecDestroy" c"cuGraphExecDestroy" 10000 false graph::exec_destroy [];
    // ── what ends memory without naming it ─────────────────────────────────────────────────────────────────
    cuCtxDestroy = Driver "cuCtxDestroy" c"cuCtxDestroy" 2000 false context::destroy [];
    cuCtxDestroy_v2 = Driver "cuCtxDestroy" c"cuCtxDestroy_v2" 4000 false context::destroy [];
    cuDevicePrimaryCtxRetain = Driver "cuDevicePrimaryCtxRetain" c"cuDevicePrimaryCtxRetain" 7000 false context::retain_primary [];
    cuDevicePrimaryCtxReset = Driver "cuDevicePrimaryCtxReset" c"cuDevicePrimaryCtxReset" 7000 false context::reset_primary [];
    cuDevicePrimaryCtxReset_v2 = Driver "cuDevicePrimaryCtxReset" c"cuDevicePrimaryCtxReset_v2" 11000 false context::reset_primary [];
    cuDevicePrimaryCtxRelease = Driver "cuDevicePrimaryCtxRelease" c"cuDevicePrimaryCtxRelease" 7000 false context::release_primary [];
    cuDevicePrimaryCtxRelease_v2 = Driver "cuDevicePrimaryCtxRelease" c"cuDevicePrimaryCtxRelease_v2" 11000 false context::release_primary [];
    cuGreenCtxDestroy = Driver "cuGreenCtxDestroy" c"cuGreenCtxDestroy" 12040 false context::destroy_green [];
    // ── capture: while it lasts, the driver must not be asked anything ─────────────────────────────────────
    cuStreamBeginCapture = Driver "cuStreamBeginCapture" c"cuStreamBeginCapture" 10000 false context::begin_capture_v1 [];
    cuStreamBeginCapture_ptsz = Driver "cuStreamBeginCapture" c"cuStreamBeginCapture_ptsz" 10000 true context::begin_capture_v1 [];
    cuStreamBeginCapture_v2 = Driver "cuStreamBeginCapture" c"cuStreamBeginCapture_v2" 10010 false context::begin_capture [];
    cuStreamBeginCapture_v2_ptsz = Driver "cuStreamBeginCapture" c"cuStreamBeginCapture_v2_ptsz" 10010 true context::begin_capture [];
    cuStreamBeginCaptureToGraph = Driver "cuStreamBeginCaptureToGraph" c"cuStreamBeginCaptureToGraph" 12030 false context::begin_capture_to_graph [];
    cuStreamBeginCaptureToGraph_ptsz = Driver "cuStreamBeginCaptureToGraph" c"cuStreamBeginCaptureToGraph_ptsz" 12030 true context::begin_capture_to_graph [];
    cuStreamEndCapture = Driver "cuStreamEndCapture" c"cuStreamEndCapture" 10000 false context::end_capture [];
    cuStreamEndCapture_ptsz = Driver "cuStreamEndCapture" c"cuStreamEndCapture_ptsz" 10000 true context::end_capture [];
    // ── work for the device: it shows where loops come round ───────────────────────────────────────────────
    cuMemcpy = Driver "cuMemcpy" c"cuMemcpy" 4000 false work::copy [];
    cuMemcpy_ptds = Driver "cuMemcpy" c"cuMemcpy_ptds" 7000 true work::copy [];
    cuMemcpyAsync = Driver "cuMemcpyAsync" c"cuMemcpyAsync" 4000 false work::copy [];
    cuMemcpyAsync_ptsz = Driver "cuMemcpyAsync" c"cuMemcpyAsync_ptsz" 7000 true work::copy [];
    cuMemcpyHtoD_v2 = Driver "cuMemcpyHtoD" c"cuMemcpyHtoD_v2" 3020 false work::copy [];
    cuMemcpyHtoD_v2_ptds = Driver "cuMemcpyHtoD" c"cuMemcpyHtoD_v2_ptds" 7000 true work::copy [];
    cuMemcpyDtoH_v2 = Driver "cuMemcpyDtoH" c"cuMemcpyDtoH_v2" 3020 false work::copy_to_host [];
    cuMemcpyDtoH_v2_ptds = Driver "cuMemcpyDtoH" c"cuMemcpyDtoH_v2_ptds" 7000 true work::copy_to_host [];
    cuMemcpyHtoDAsync_v2 = Driver "cuMemcpyHtoDAsync" c"cuMemcpyHtoDAsync_v2" 3020 false work::copy [];
    cuMemcpyHtoDAsync_v2_ptsz = Driver "cuMemcpyHtoDAsync" c"cuMemcpyHtoDAsync_v2_ptsz" 7000 true work::copy [];
    cuMemcpyDtoHAsync_v2 = Driver "cuMemcpyDtoHAsync" c"cuMemcpyDtoHAsync_v2" 3020 false work::copy_to_host [];
    cuMemcpyDtoHAsync_v2_ptsz = Driver "cuMemcpyDtoHAsync" c"cuMemcpyDtoHAsync_v2_ptsz" 7000 true work::copy_to_host [];
    cuMemcpyDtoD_v2 = Driver "cuMemcpyDtoD" c"cuMemcpyDtoD_v2" 3020 false work::copy [];
    cuMemcpyDtoD_v2_ptds = Driver "cuMemcpyDtoD" c"cuMemcpyDtoD_v2_ptds" 7000 true work::copy [];
    cuMemcpyDtoDAsync_v2 = Driver "cuMemcpyDtoDAsync" c"cuMemcpyDtoDAsync_v2" 3020 false work::copy [];
    cuMemcpyDtoDAsync_v2_ptsz = Driver "cuMemcpyDtoDAsync" c"cuMemcpyDtoDAsync_v2_ptsz" 7000 true work::copy [];
    cuMemsetD8_v2 = Driver "cuMemsetD8" c"cuMemsetD8_v2" 3020 false work::copy [];
    cuMemsetD8_v2_ptds = Driver "cuMemsetD8" c"cuMemsetD8_v2_ptds" 7000 true work::copy [];
    cuMemsetD8Async = Driver "cuMemsetD8Async" c"cuMemsetD8Async" 3020 false work::copy [];
    cuMemsetD8Async_ptsz = Driver "cuMemsetD8Async" c"cuMemsetD8Async_ptsz" 7000 true work::copy [];
    cuMemsetD16_v2 = Driver "cuMemsetD16" c"cuMemsetD16_v2" 3020 false work::copy [];
    cuMemsetD16_v2_ptds = Driver "cuMemsetD16" c"cuMemsetD16_v2_ptds" 7000 true work::copy [];
    cuMemsetD16Async = Driver "cuMemsetD16Async" c"cuMemsetD16Async" 3020 false work::copy [];
    cuMemsetD16Async_ptsz = Driver "cuMemsetD16Async" c"cuMemsetD16Async_ptsz" 7000 true work::copy [];
    cuMemsetD32_v2 = Driver "cuMemsetD32" c"cuMemsetD32_v2" 3020 false work::copy [];
    cuMemsetD32_v2_ptds = Driver "cuMemsetD32" c"cuMemsetD32_v2_ptds" 7000 true work::copy [];
    cuMemsetD32Async = Driver "cuMemsetD32Async" c"cuMemsetD32Async" 3020 false work::copy [];
    cuMemsetD32Async_ptsz = Driver "cuMemsetD32Async" c"cuMemsetD32Async_ptsz" 7000 true work::copy [];
    cuLaunchKernel = Driver "cuLaunchKernel" c"cuLaunchKernel" 4000 false work::launch [];
    cuLaunchKernel_ptsz = Driver "cuLaunchKernel" c"cuLaunchKernel_ptsz" 7000 true work::launch [];
    cuLaunchKernelEx = Driver "cuLaunchKernelEx" c"cuLaunchKernelEx" 11060 false work::launch_ex [];
    cuLaunchKernelEx_ptsz = Driver "cuLaunchKernelEx" c"cuLaunchKernelEx_ptsz" 11060 true work::launch_ex [];
    cuLaunchCooperativeKernel = Driver "cuLaunchCooperativeKernel" c"cuLaunchCooperativeKernel" 9000 false work::launch [];
    cuLaunchCooperativeKernel_ptsz = Driver "cuLaunchCooperativeKernel" c"cuLaunchCooperativeKernel_ptsz" 9000 true work::launch [];
    // ── what takes memory without saying how much: counted, so that a report can name it ───────────────────
    cuModuleLoad = Driver "cuModuleLoad" c"cuModuleLoad" 2000 false untracked::count [];
    cuModuleLoadData = Driver "cuModuleLoadData" c"cuModuleLoadData" 2000 false untracked::count [];
    cuModuleLoadDataEx = Driver "cuModuleLoadDataEx" c"cuModuleLoadDataEx" 2010 false untracked::count [];
    cuModuleLoadFatBinary = Driver "cuModuleLoadFatBinary" c"cuModuleLoadFatBinary" 2000 false untracked::count [];
    cuModuleUnload = Driver "cuModuleUnload" c"cuModuleUnload" 2000 false untracked::count [];
    cuLibraryLoadData = Driver "cuLibraryLoadData" c"cuLibraryLoadData" 12000 false untracked::count [];
    cuLibraryLoadFromFile = Driver "cuLibraryLoadFromFile" c"cuLibraryLoadFromFile" 12000 false untracked::count [];
    cuLibraryUnload = Driver "cuLibraryUnload" c"cuLibraryUnload" 12000 false untracked::count [];
    cuCtxSetLimit = Driver "cuCtxSetLimit" c"cuCtxSetLimit" 3010 false untracked::count [];
    cuCtxEnablePeerAccess = Driver "cuCtxEnablePeerAccess" c"cuCtxEnablePeerAccess" 4000 false untracked::count [];
    cuCtxDisablePeerAccess = Driver "cuCtxDisablePeerAccess" c"cuCtxDisablePeerAccess" 4000 false untracked::count [];
    cuGraphicsMapResources = Driver "cuGraphicsMapResources" c"cuGraphicsMapResources" 3000 false untracked::count [];
    cuGraphicsMapResources_ptsz = Driver "cuGraphicsMapResources" c"cuGraphicsMapResources_ptsz" 3000 true untracked::count [];
    cuGraphicsUnmapResources = Driver "cuGraphicsUnmapResources" c"cuGraphicsUnmapResources" 3000 false untracked::count [];
    cuGraphicsUnmapResources_ptsz = Driver "cuGraphicsUnmapResources" c"cuGraphicsUnmapResources_ptsz" 3000 true untracked::count [];
    cuMemPoolTrimTo = Driver "cuMemPoolTrimTo" c"cuMemPoolTrimTo" 11020 false untracked::trim_pool [];
    cuDeviceGraphMemTrim = Driver "cuDeviceGraphMemTrim" c"cuDeviceGraphMemTrim" 11040 false untracked::count [];
    cuModuleGetGlobal_v2 = Driver "cuModuleGetGlobal" c"cuModuleGetGlobal_v2" 3020 false untracked::global [];
    cuLibraryGetGlobal = Driver "cuLibraryGetGlobal" c"cuLibraryGetGlobal" 12000 false untracked::global [];
    cuLibraryGetManaged = Driver "cuLibraryGetManaged" c"cuLibraryGetManaged" 12000 false untracked::global [];
    // ── the runtime: names what happens inside it ──────────────────────────────────────────────────────────
    cudaMalloc = Runtime "cudaMalloc" c"cudaMalloc" 0 false runtime::malloc ["cudaFree"];
    cudaMallocManaged = Runtime "cudaMallocManaged" c"cudaMallocManaged" 0 false runtime::malloc_managed ["cudaFree"];
    cudaMallocPitch = Runtime "cudaMallocPitch" c"cudaMallocPitch" 0 false runtime::malloc_pitch ["cudaFree"];
    cudaMalloc3D = Runtime "cudaMalloc3D" c"cudaMalloc3D" 0 false runtime::malloc_3d ["cudaFree"];
    cudaMallocAsync = Runtime "cudaMallocAsync" c"cudaMallocAsync" 0 false runtime::malloc_async ["cudaFreeAsync" "cudaFree"];
    cudaMallocAsync_ptsz = Runtime "cudaMallocAsync" c"cudaMallocAsync_ptsz" 0 true runtime::malloc_async ["cudaFreeAsync" "cudaFree"];
    cudaMallocFromPoolAsync = Runtime "cudaMallocFromPoolAsync" c"cudaMallocFromPoolAsync" 0 false runtime::malloc_from_pool ["cudaFreeAsync" "cudaFree"];
    cudaMallocFromPoolAsync_ptsz = Runtime "cudaMallocFromPoolAsync" c"cudaMallocFromPoolAsync_ptsz" 0 true runtime::malloc_from_pool ["cudaFreeAsync" "cudaFree"];
    cudaMallocHost = Runtime "cudaMallocHost" c"cudaMallocHost" 0 false runtime::malloc_host ["cudaFreeHost"];
    cudaHostAlloc = Runtime "cudaHostAlloc" c"cudaHostAlloc" 0 false runtime::host_alloc ["cudaFreeHost"];
    cudaFree = Runtime "cudaFree" c"cudaFree" 0 false runtime::free [];
    cudaFreeAsync = Runtime "cudaFreeAsync" c"cudaFreeAsync" 0 false runtime::free_async [];
    cudaFreeAsync_ptsz = Runtime "cudaFreeAsync" c"cudaFreeAsync_ptsz" 0 true runtime::free_async [];
    cudaFreeHost = Runtime "cudaFreeHost" c"cudaFreeHost" 0 false runtime::free_host [];
    cudaHostRegister = Runtime "cudaHostRegister" c"cudaHostRegister" 0 false runtime::host_register ["cudaHostUnregister"];
    cudaHostUnregister = Runtime "cudaHostUnregister" c"cudaHostUnregister" 0 false runtime::host_unregister [];
    cudaMallocArray = Runtime "cudaMallocArray" c"cudaMallocArray" 0 false runtime::malloc_array ["cudaFreeArray"];
    cudaMalloc3DArray = Runtime "cudaMalloc3DArray" c"cudaMalloc3DArray" 0 false runtime::malloc_3d_array ["cudaFreeArray"];
    cudaFreeArray = Runtime "cudaFreeArray" c"cudaFreeArray" 0 false runtime::free_array [];
    cudaMallocMipmappedArray = Runtime "cudaMallocMipmappedArray" c"cudaMallocMipmappedArray" 0 false runtime::malloc_mipmapped_array ["cudaFreeMipmappedArray"];
    cudaFreeMipmappedArray = Runtime "cudaFreeMipmappedArray" c"cudaFreeMipmappedArray" 0 false runtime::free_array [];
    } };
}

/// Every other function of the driver and the runtime, by pattern (`*`: anything), and why it needs no hook.
/// The first pattern that fits is the reason.
pub const PASSED_OVER: &[(&str, &str)] = &[
    // ── near memory, and yet ───────────────────────────────────────────────────────────────────────────────
    (
        "cuMemMapArrayAsync",
        "maps handles that are counted where they are made; tiles keep no handle alive: see `leaktrace help limits`",
    ),
    ("cuMemExportToShareableHandle", "lends: the memory stays counted here"),
    ("cuMemPoolExport*", "lends: the memory stays counted here"),
    (
        "cuMemPoolImportFromShareableHandle",
        "a pool of another process: what is taken from it is seen at cuMemPoolImportPointer",
    ),
    ("cuMemPoolSet*", "changes what a pool may hold unused, which is asked at each boundary"),
    ("cuMemPoolGet*", "asks"),
    ("cuDeviceSetMemPool", "chooses a pool: each is asked at each boundary"),
    ("cuMemSetMemPool", "chooses a pool: each is asked at each boundary"),
    ("cuMemSetAccess", "access, no memory"),
    ("cuMulticast*", "binds memory that is counted where it is made"),
    ("cuLogicalEndpoint*", "addresses of memory that is counted where it is made"),
    ("cuIpcGet*", "lends: the memory stays counted here"),
    ("cuIpcOpenEventHandle", "an event, no memory"),
    ("cuGraphAddMemFreeNode", "found when the graph is instantiated"),
    ("cuGraphAddNode_v3", "found when the graph is instantiated, without the line that made it"),
    ("cuGraphExec*", "cannot change memory nodes"),
    ("cuGraph*", "builds or asks: what a graph allocates and frees is read when it is instantiated"),
    ("cuDevice*GraphMemAttribute", "asks, or resets a high-water mark"),
    ("cuGraphicsSubResource*", "an address of a resource that is mapped"),
    ("cuGraphicsResource*", "an address of a resource that is mapped"),
    ("cuGraphicsUnregisterResource", "the memory is the graphics library's"),
    ("cuCtxCreate*", "the driver does not tell the size of a context's own memory: it shows as unattributed"),
    ("cuCtxAttach", "deprecated: a reference"),
    (
        "cuCtxDetach",
        "deprecated: ends a context with its last reference only; its memory then counts until the exit",
    ),
    (
        "cuGreenCtxCreate",
        "the driver does not tell the size of a context's own memory: it shows as unattributed",
    ),
    ("cuStreamBeginCaptureToCig", "captures for a graphics client: no memory nodes"),
    ("cuStreamBeginRecaptureToGraph", "records over a graph that was seen"),
    ("cuStreamEndCaptureToCig", "captures for a graphics client: no memory nodes"),
    ("cuMemGet*", "asks"),
    ("cuMemRangeGet*", "asks"),
    ("cuMemHostGet*", "asks"),
    ("cuArray*Get*", "asks"),
    ("cuMipmappedArrayGet*", "asks, or names a part"),
    ("cuPointer*", "asks, or sets an attribute"),
    ("cuImportExternalSemaphore", "no memory"),
    ("cuDestroyExternalSemaphore", "no memory"),
    ("cuUserObject*", "lifetimes of the program's own objects"),
    // ── data on its way, work, questions ───────────────────────────────────────────────────────────────────
    ("cuMemcpy*", "moves bytes; the plain copies suffice to see where a loop comes round"),
    ("cuMemset*", "writes bytes; the plain ones suffice to see where a loop comes round"),
    ("cuMemPrefetch*", "moves pages"),
    ("cuMemDiscard*", "drops contents, not memory"),
    ("cuMemBatchDecompressAsync", "writes bytes"),
    ("cuMemAdvise*", "a hint"),
    ("cuModule*", "looks into a module that is counted when it is loaded"),
    ("cuLibrary*", "looks into a library that is counted when it is loaded"),
    ("cuLink*", "makes code on the host"),
    ("cuFunc*", "functions"),
    ("cuKernel*", "functions"),
    ("cuLaunch*", "work; the plain launches suffice to see where a loop comes round"),
    ("cuOccupancy*", "asks"),
    ("cuStream*", "streams"),
    ("cuEvent*", "events"),
    ("cuCtx*", "contexts: current, attributes, events"),
    ("cuGreenCtx*", "contexts: attributes, streams, events"),
    ("cuDevResource*", "parts of a device"),
    ("cuDevSmResource*", "parts of a device"),
    ("cuDevice*", "asks, or sets flags"),
    ("cuTex*", "views"),
    ("cuSurf*", "views"),
    ("cuTensorMap*", "views"),
    ("cuParam*", "deprecated: arguments of a launch"),
    ("cuSignalExternal*", "work"),
    ("cuWaitExternal*", "work"),
    ("cuThreadExchangeStreamCaptureMode", "work"),
    ("cuCoredump*", "debugging"),
    ("cuLogs*", "debugging"),
    ("cuProfiler*", "debugging"),
    ("cuCheckpoint*", "the process is stopped: memory comes back as it was"),
    ("cuFlushGPUDirectRDMAWrites", "work"),
    ("cuDriverGetVersion", "asks"),
    ("cuGetError*", "asks"),
    ("cuGetExportTable", "private tables are not ours to read"),
    ("cuInit", "no memory of the program's"),
    // ── the runtime: what it takes comes from the driver, where it is seen; hooks only lend the names people know ──
    ("cuda*", "reaches the driver, where it is seen under the driver's name"),
];
