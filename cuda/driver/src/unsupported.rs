//! Documented functions that exist and say so: not supported.

use crate::abi::{Handle, In, Out};
use crate::error::*;

/// Private tables are not imitated.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetExportTable(table: Out<Handle>, _id: In<[u8; 16]>) -> Status {
    distinct!(cuGetExportTable);
    table.put_opt(0);
    NOT_SUPPORTED
}

// Their arguments are not looked at; in the C calling convention they need not be declared.
macro_rules! not_supported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> Status {
            distinct!($name);
            NOT_SUPPORTED
        }
    )*};
}
not_supported! {
    cuImportExternalSemaphore cuDestroyExternalSemaphore
    cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
    cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz
    cuGraphConditionalHandleCreate
    cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject cuGraphReleaseUserObject
    cuTexObjectGetResourceDesc cuTexObjectGetTextureDesc cuTexObjectGetResourceViewDesc
    cuSurfObjectGetResourceDesc
    cuLaunchCooperativeKernelMultiDevice
}
