//! The driver's functions that the runtime uses: base name, the version that introduced it, signature.
//!
//! `s` rows take a stream and exist for either default stream; `d` rows do not.

use crate::abi::*;
use crate::error::Outcome;
pub use crate::lookup::{D, Via};
use crate::lookup::{Row, Slots, check, empty, pointer};
use std::ffi::{c_char, c_int, c_void};

macro_rules! streams {
    (s) => {
        true
    };
    (d) => {
        false
    };
}

macro_rules! driver_api {
    ($( $kind:ident $name:ident = $symbol:literal $since:literal ( $($type:ty),* ); )*) => {
        mod slot {
            use super::{Slots, empty};
            $( #[allow(non_upper_case_globals)] pub static $name: Slots = empty(); )*
        }
        static ROWS: &[Row] = &[
            $( Row { name: $symbol, since: $since, streams: streams!($kind), pointers: &slot::$name } ),*
        ];
        impl Via {
            $( driver_api!(@method $name ($($type),*)); )*
        }
    };
    (@method $name:ident ()) => { driver_api!(@body $name () ()); };
    (@method $name:ident ($($t:ty),*)) => { driver_api!(@name $name [a b c d e f g h i j k] [$($t),*] []); };
    (@name $name:ident [$($left:ident)*] [] [$($arg:ident: $type:ty,)*]) => {
        driver_api!(@body $name ($($arg),*) ($($type),*));
    };
    (@name $name:ident [$first:ident $($left:ident)*] [$t:ty $(, $rest:ty)*] [$($arg:ident: $type:ty,)*]) => {
        driver_api!(@name $name [$($left)*] [$($rest),*] [$($arg: $type,)* $first: $t,]);
    };
    (@body $name:ident ($($arg:ident),*) ($($type:ty),*)) => {
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(self, $($arg: $type),*) -> Outcome {
            let entry = pointer(ROWS, &slot::$name, self)?;
            let entry: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(entry);
            check(entry($($arg),*))
        }
    };
}

/// Opens the driver while the program loads.
pub extern "C" fn open() {
    crate::lookup::open(ROWS);
}

type P<T> = *mut T;
type Q<T> = *const T;
type Size = usize;

driver_api! {
    d init = c"cuInit" 2000 (u32);
    d driver_version = c"cuDriverGetVersion" 2020 (P<c_int>);
    d device_count = c"cuDeviceGetCount" 2000 (P<c_int>);
    d device_name = c"cuDeviceGetName" 2000 (P<c_char>, c_int, c_int);
    d device_uuid = c"cuDeviceGetUuid" 11040 (P<c_void>, c_int);
    d device_total = c"cuDeviceTotalMem" 3020 (P<Size>, c_int);
    d device_attribute = c"cuDeviceGetAttribute" 2000 (P<c_int>, c_int, c_int);
    d device_by_pci = c"cuDeviceGetByPCIBusId" 4010 (P<c_int>, Q<c_char>);
    d device_pci = c"cuDeviceGetPCIBusId" 4010 (P<c_char>, c_int, c_int);
    d device_can_access = c"cuDeviceCanAccessPeer" 4000 (P<c_int>, c_int, c_int);
    d device_p2p = c"cuDeviceGetP2PAttribute" 8000 (P<c_int>, c_int, c_int, c_int);
    d primary_retain = c"cuDevicePrimaryCtxRetain" 7000 (P<Handle>, c_int);
    d primary_flags = c"cuDevicePrimaryCtxSetFlags" 11000 (c_int, u32);
    d primary_state = c"cuDevicePrimaryCtxGetState" 7000 (c_int, P<u32>, P<c_int>);
    d primary_reset = c"cuDevicePrimaryCtxReset" 11000 (c_int);
    d ctx_set = c"cuCtxSetCurrent" 4000 (Handle);
    d ctx_get = c"cuCtxGetCurrent" 4000 (P<Handle>);
    d ctx_device = c"cuCtxGetDevice" 2000 (P<c_int>);
    d ctx_synchronize = c"cuCtxSynchronize" 2000 ();
    d ctx_set_limit = c"cuCtxSetLimit" 3010 (c_int, Size);
    d ctx_limit = c"cuCtxGetLimit" 3010 (P<Size>, c_int);
    d ctx_set_cache = c"cuCtxSetCacheConfig" 3020 (c_int);
    d ctx_cache = c"cuCtxGetCacheConfig" 3020 (P<c_int>);
    d ctx_priorities = c"cuCtxGetStreamPriorityRange" 5050 (P<c_int>, P<c_int>);
    d ctx_reset_l2 = c"cuCtxResetPersistingL2Cache" 11000 ();
    d ctx_enable_peer = c"cuCtxEnablePeerAccess" 4000 (Handle, u32);
    d ctx_disable_peer = c"cuCtxDisablePeerAccess" 4000 (Handle);
    d profiler_start = c"cuProfilerStart" 4000 ();
    d profiler_stop = c"cuProfilerStop" 4000 ();

    d mem_info = c"cuMemGetInfo" 3020 (P<Size>, P<Size>);
    d mem_alloc = c"cuMemAlloc" 3020 (P<DevPtr>, Size);
    d mem_alloc_pitch = c"cuMemAllocPitch" 3020 (P<DevPtr>, P<Size>, Size, Size, u32);
    d mem_alloc_managed = c"cuMemAllocManaged" 6000 (P<DevPtr>, Size, u32);
    d mem_free = c"cuMemFree" 3020 (DevPtr);
    d host_alloc = c"cuMemHostAlloc" 2020 (P<Handle>, Size, u32);
    d host_free = c"cuMemFreeHost" 2000 (Handle);
    d host_register = c"cuMemHostRegister" 6050 (Handle, Size, u32);
    d host_unregister = c"cuMemHostUnregister" 4000 (Handle);
    d host_pointer = c"cuMemHostGetDevicePointer" 3020 (P<DevPtr>, Handle, u32);
    d host_flags = c"cuMemHostGetFlags" 2030 (P<u32>, Handle);
    d pointer_attributes = c"cuPointerGetAttributes" 7000 (u32, Q<c_int>, P<Handle>, DevPtr);
    d mem_advise = c"cuMemAdvise" 8000 (DevPtr, Size, c_int, c_int);
    d mem_range_attribute = c"cuMemRangeGetAttribute" 8000 (Handle, Size, c_int, DevPtr, Size);
    d mem_range_attributes = c"cuMemRangeGetAttributes" 8000 (P<Handle>, P<Size>, P<c_int>, Size, DevPtr, Size);
    s mem_prefetch = c"cuMemPrefetchAsync" 8000 (DevPtr, Size, c_int, Stream);
    s mem_alloc_async = c"cuMemAllocAsync" 11020 (P<DevPtr>, Size, Stream);
    s mem_alloc_from_pool = c"cuMemAllocFromPoolAsync" 11020 (P<DevPtr>, Size, Pool, Stream);
    s mem_free_async = c"cuMemFreeAsync" 11020 (DevPtr, Stream);

    d pool_create = c"cuMemPoolCreate" 11020 (P<Pool>, Q<c_void>);
    d pool_destroy = c"cuMemPoolDestroy" 11020 (Pool);
    d pool_trim = c"cuMemPoolTrimTo" 11020 (Pool, Size);
    d pool_attribute = c"cuMemPoolGetAttribute" 11020 (Pool, c_int, Handle);
    d pool_set_attribute = c"cuMemPoolSetAttribute" 11020 (Pool, c_int, Handle);
    d pool_access = c"cuMemPoolGetAccess" 11020 (P<c_int>, Pool, P<Location>);
    d pool_set_access = c"cuMemPoolSetAccess" 11020 (Pool, Q<c_void>, Size);
    d pool_export = c"cuMemPoolExportToShareableHandle" 11020 (Handle, Pool, c_int, u64);
    d pool_import = c"cuMemPoolImportFromShareableHandle" 11020 (P<Pool>, Handle, c_int, u64);
    d pool_export_pointer = c"cuMemPoolExportPointer" 11020 (Handle, DevPtr);
    d pool_import_pointer = c"cuMemPoolImportPointer" 11020 (P<DevPtr>, Pool, Handle);
    d device_default_pool = c"cuDeviceGetDefaultMemPool" 11020 (P<Pool>, c_int);
    d device_pool = c"cuDeviceGetMemPool" 11020 (P<Pool>, c_int);
    d device_set_pool = c"cuDeviceSetMemPool" 11020 (c_int, Pool);

    d ipc_event_handle = c"cuIpcGetEventHandle" 4010 (P<IpcHandle>, Event);
    d ipc_open_event = c"cuIpcOpenEventHandle" 4010 (P<Event>, IpcHandle);
    d ipc_mem_handle = c"cuIpcGetMemHandle" 4010 (P<IpcHandle>, DevPtr);
    d ipc_open_mem = c"cuIpcOpenMemHandle" 11000 (P<DevPtr>, IpcHandle, u32);
    d ipc_close_mem = c"cuIpcCloseMemHandle" 4010 (DevPtr);

    s copy = c"cuMemcpy" 4000 (DevPtr, DevPtr, Size);
    s copy_h2d = c"cuMemcpyHtoD" 3020 (DevPtr, Q<c_void>, Size);
    s copy_d2h = c"cuMemcpyDtoH" 3020 (Handle, DevPtr, Size);
    s copy_d2d = c"cuMemcpyDtoD" 3020 (DevPtr, DevPtr, Size);
    s copy_peer = c"cuMemcpyPeer" 4000 (DevPtr, Handle, DevPtr, Handle, Size);
    s copy_2d = c"cuMemcpy2DUnaligned" 3020 (Q<DriverCopy2D>);
    s copy_3d = c"cuMemcpy3D" 3020 (Q<DriverCopy3D>);
    s copy_async = c"cuMemcpyAsync" 4000 (DevPtr, DevPtr, Size, Stream);
    s copy_h2d_async = c"cuMemcpyHtoDAsync" 3020 (DevPtr, Q<c_void>, Size, Stream);
    s copy_d2h_async = c"cuMemcpyDtoHAsync" 3020 (Handle, DevPtr, Size, Stream);
    s copy_d2d_async = c"cuMemcpyDtoDAsync" 3020 (DevPtr, DevPtr, Size, Stream);
    s copy_peer_async = c"cuMemcpyPeerAsync" 4000 (DevPtr, Handle, DevPtr, Handle, Size, Stream);
    s copy_2d_async = c"cuMemcpy2DAsync" 3020 (Q<DriverCopy2D>, Stream);
    s copy_3d_async = c"cuMemcpy3DAsync" 3020 (Q<DriverCopy3D>, Stream);
    s set_d8 = c"cuMemsetD8" 3020 (DevPtr, u8, Size);
    s set_d2d8 = c"cuMemsetD2D8" 3020 (DevPtr, Size, u8, Size, Size);
    s set_d8_async = c"cuMemsetD8Async" 3020 (DevPtr, u8, Size, Stream);
    s set_d2d8_async = c"cuMemsetD2D8Async" 3020 (DevPtr, Size, u8, Size, Size, Stream);

    d array_create = c"cuArray3DCreate" 3020 (P<Array>, Q<ArrayDescriptor>);
    d array_descriptor = c"cuArray3DGetDescriptor" 3020 (P<ArrayDescriptor>, Array);
    d array_destroy = c"cuArrayDestroy" 2000 (Array);
    d mipmap_create = c"cuMipmappedArrayCreate" 5000 (P<Handle>, Q<ArrayDescriptor>, u32);
    d mipmap_level = c"cuMipmappedArrayGetLevel" 5000 (P<Array>, Handle, u32);
    d mipmap_destroy = c"cuMipmappedArrayDestroy" 5000 (Handle);

    d stream_create = c"cuStreamCreate" 2000 (P<Stream>, u32);
    d stream_create_priority = c"cuStreamCreateWithPriority" 5050 (P<Stream>, u32, c_int);
    d stream_destroy = c"cuStreamDestroy" 4000 (Stream);
    s stream_priority = c"cuStreamGetPriority" 5050 (Stream, P<c_int>);
    s stream_flags = c"cuStreamGetFlags" 5050 (Stream, P<u32>);
    s stream_id = c"cuStreamGetId" 12000 (Stream, P<u64>);
    s stream_device = c"cuStreamGetDevice" 12080 (Stream, P<c_int>);
    s stream_wait = c"cuStreamWaitEvent" 3020 (Stream, Event, u32);
    s stream_callback = c"cuStreamAddCallback" 5000 (Stream, Handle, Handle, u32);
    s stream_query = c"cuStreamQuery" 2000 (Stream);
    s stream_synchronize = c"cuStreamSynchronize" 2000 (Stream);
    s stream_attach = c"cuStreamAttachMemAsync" 6000 (Stream, DevPtr, Size, u32);
    s stream_attribute = c"cuStreamGetAttribute" 11000 (Stream, c_int, Handle);
    s stream_set_attribute = c"cuStreamSetAttribute" 11000 (Stream, c_int, Q<c_void>);
    s stream_copy_attributes = c"cuStreamCopyAttributes" 11000 (Stream, Stream);
    s host_func = c"cuLaunchHostFunc" 10000 (Stream, Handle, Handle);

    s capture_begin = c"cuStreamBeginCapture" 10010 (Stream, c_int);
    s capture_begin_to = c"cuStreamBeginCaptureToGraph" 12030 (Stream, Graph, Q<Node>, Q<c_void>, Size, c_int);
    s capture_end = c"cuStreamEndCapture" 10000 (Stream, P<Graph>);
    s capture_status = c"cuStreamIsCapturing" 10000 (Stream, P<c_int>);
    s capture_info = c"cuStreamGetCaptureInfo" 11030
        (Stream, P<c_int>, P<u64>, P<Graph>, P<Q<Node>>, P<Size>);
    s capture_info_edges = c"cuStreamGetCaptureInfo" 12030
        (Stream, P<c_int>, P<u64>, P<Graph>, P<Q<Node>>, P<Q<c_void>>, P<Size>);
    s capture_update = c"cuStreamUpdateCaptureDependencies" 11030 (Stream, P<Node>, Size, u32);
    s capture_update_edges = c"cuStreamUpdateCaptureDependencies" 12030
        (Stream, P<Node>, Q<c_void>, Size, u32);
    d capture_mode = c"cuThreadExchangeStreamCaptureMode" 10010 (P<c_int>);

    d event_create = c"cuEventCreate" 2000 (P<Event>, u32);
    d event_destroy = c"cuEventDestroy" 4000 (Event);
    d event_query = c"cuEventQuery" 2000 (Event);
    d event_synchronize = c"cuEventSynchronize" 2000 (Event);
    d event_elapsed = c"cuEventElapsedTime" 2000 (P<f32>, Event, Event);
    s event_record = c"cuEventRecord" 2000 (Event, Stream);
    s event_record_flags = c"cuEventRecordWithFlags" 11010 (Event, Stream, u32);

    d graph_create = c"cuGraphCreate" 10000 (P<Graph>, u32);
    d graph_destroy = c"cuGraphDestroy" 10000 (Graph);
    d graph_clone = c"cuGraphClone" 10000 (P<Graph>, Graph);
    d graph_nodes = c"cuGraphGetNodes" 10000 (Graph, P<Node>, P<Size>);
    d graph_roots = c"cuGraphGetRootNodes" 10000 (Graph, P<Node>, P<Size>);
    d graph_node_type = c"cuGraphNodeGetType" 10000 (Node, P<c_int>);
    d graph_node_dependencies = c"cuGraphNodeGetDependencies" 10000 (Node, P<Node>, P<Size>);
    d graph_node_dependencies_edges = c"cuGraphNodeGetDependencies" 12030 (Node, P<Node>, Handle, P<Size>);
    d graph_add_dependencies = c"cuGraphAddDependencies" 10000 (Graph, Q<Node>, Q<Node>, Size);
    d graph_destroy_node = c"cuGraphDestroyNode" 10000 (Node);
    d graph_add_kernel = c"cuGraphAddKernelNode" 12000 (P<Node>, Graph, Q<Node>, Size, Q<DriverKernelParams>);
    d graph_add_memset = c"cuGraphAddMemsetNode" 10000 (P<Node>, Graph, Q<Node>, Size, Q<c_void>, Handle);
    d graph_add_memcpy = c"cuGraphAddMemcpyNode" 10000 (P<Node>, Graph, Q<Node>, Size, Q<DriverCopy3D>, Handle);
    d graph_add_empty = c"cuGraphAddEmptyNode" 10000 (P<Node>, Graph, Q<Node>, Size);
    d graph_add_host = c"cuGraphAddHostNode" 10000 (P<Node>, Graph, Q<Node>, Size, Q<c_void>);
    d graph_add_child = c"cuGraphAddChildGraphNode" 10000 (P<Node>, Graph, Q<Node>, Size, Graph);
    d graph_add_alloc = c"cuGraphAddMemAllocNode" 11040 (P<Node>, Graph, Q<Node>, Size, Handle);
    d graph_add_free = c"cuGraphAddMemFreeNode" 11040 (P<Node>, Graph, Q<Node>, Size, DevPtr);
    d graph_instantiate = c"cuGraphInstantiateWithFlags" 11040 (P<GraphExec>, Graph, u64);
    d graph_exec_destroy = c"cuGraphExecDestroy" 10000 (GraphExec);
    d graph_exec_update = c"cuGraphExecUpdate" 12000 (GraphExec, Graph, Handle);
    d graph_dot = c"cuGraphDebugDotPrint" 11030 (Graph, Q<c_char>, u32);
    d graph_mem_trim = c"cuDeviceGraphMemTrim" 11040 (c_int);
    d graph_mem_attribute = c"cuDeviceGetGraphMemAttribute" 11040 (c_int, c_int, Handle);
    d graph_set_mem_attribute = c"cuDeviceSetGraphMemAttribute" 11040 (c_int, c_int, Handle);
    d graph_retain_object = c"cuGraphRetainUserObject" 11030 (Graph, Handle, u32, u32);
    d graph_release_object = c"cuGraphReleaseUserObject" 11030 (Graph, Handle, u32);
    d object_create = c"cuUserObjectCreate" 11030 (P<Handle>, Handle, Handle, u32, u32);
    d object_retain = c"cuUserObjectRetain" 11030 (Handle, u32);
    d object_release = c"cuUserObjectRelease" 11030 (Handle, u32);
    s graph_upload = c"cuGraphUpload" 11010 (GraphExec, Stream);
    s graph_launch = c"cuGraphLaunch" 10000 (GraphExec, Stream);

    d library_load = c"cuLibraryLoadData" 12000
        (P<Handle>, Q<c_void>, Handle, Handle, u32, Handle, Handle, u32);
    d library_load_file = c"cuLibraryLoadFromFile" 12000
        (P<Handle>, Q<c_char>, Handle, Handle, u32, Handle, Handle, u32);
    d library_unload = c"cuLibraryUnload" 12000 (Handle);
    d library_kernel = c"cuLibraryGetKernel" 12000 (P<Handle>, Handle, Q<c_char>);
    d library_global = c"cuLibraryGetGlobal" 12000 (P<DevPtr>, P<Size>, Handle, Q<c_char>);
    d library_managed = c"cuLibraryGetManaged" 12000 (P<DevPtr>, P<Size>, Handle, Q<c_char>);
    d kernel_function = c"cuKernelGetFunction" 12000 (P<Handle>, Handle);
    d func_attribute = c"cuFuncGetAttribute" 2020 (P<c_int>, c_int, Handle);
    d func_set_attribute = c"cuFuncSetAttribute" 9000 (Handle, c_int, c_int);
    d func_set_cache = c"cuFuncSetCacheConfig" 3000 (Handle, c_int);
    s launch = c"cuLaunchKernel" 4000
        (Handle, u32, u32, u32, u32, u32, u32, u32, Stream, P<Handle>, P<Handle>);
    s launch_ex = c"cuLaunchKernelEx" 11060 (Q<c_void>, Handle, P<Handle>, P<Handle>);
    s launch_cooperative = c"cuLaunchCooperativeKernel" 9000
        (Handle, u32, u32, u32, u32, u32, u32, u32, Stream, P<Handle>);
    d occupancy = c"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000
        (P<c_int>, Handle, c_int, Size, u32);
    d occupancy_smem = c"cuOccupancyAvailableDynamicSMemPerBlock" 10020 (P<Size>, Handle, c_int, c_int);
    d occupancy_clusters = c"cuOccupancyMaxActiveClusters" 11070 (P<c_int>, Handle, Q<c_void>);
    d occupancy_cluster_size = c"cuOccupancyMaxPotentialClusterSize" 11070 (P<c_int>, Handle, Q<c_void>);
}
