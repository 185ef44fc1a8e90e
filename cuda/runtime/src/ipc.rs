//! Memory and events of other processes.

use crate::abi::{DevPtr, Event, Handle, IpcHandle};
use crate::driver::D;
use crate::error::Code;

export! {
    device fn cudaIpcGetMemHandle(out: *mut IpcHandle, pointer: Handle) {
        D.ipc_mem_handle(out, pointer as DevPtr)
    }

    device fn cudaIpcOpenMemHandle(out: *mut Handle, shared: IpcHandle, flags: u32) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut address = 0;
        D.ipc_open_mem(&mut address, shared, flags)?;
        *out = address as Handle;
        Ok(())
    }

    device fn cudaIpcCloseMemHandle(pointer: Handle) {
        D.ipc_close_mem(pointer as DevPtr)
    }
}

forward! {
    device fn cudaIpcGetEventHandle(out: *mut IpcHandle, event: Event) => ipc_event_handle;
    device fn cudaIpcOpenEventHandle(out: *mut Event, shared: IpcHandle) => ipc_open_event;
}
