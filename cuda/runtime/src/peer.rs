//! Access between devices.

use crate::driver::D;
use crate::error::Code;
use crate::state;

export! {
    init fn cudaDeviceCanAccessPeer(out: *mut i32, device: i32, peer: i32) {
        state::valid(device)?;
        state::valid(peer)?;
        D.device_can_access(out, device, peer)
    }

    device fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32) {
        state::valid(peer)?;
        if peer == state::current_device() {
            return Err(Code::INVALID_DEVICE);
        }
        D.ctx_enable_peer(state::primary(peer)?, flags)
    }

    device fn cudaDeviceDisablePeerAccess(peer: i32) {
        state::valid(peer)?;
        D.ctx_disable_peer(state::primary(peer)?)
    }

    init fn cudaDeviceGetP2PAttribute(out: *mut i32, attribute: i32, device: i32, peer: i32) {
        state::valid(device)?;
        state::valid(peer)?;
        D.device_p2p(out, attribute, device, peer)
    }
}
