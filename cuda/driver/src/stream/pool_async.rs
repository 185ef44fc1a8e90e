//! Stream-ordered allocation and free.

use crate::abi::pointers::{Addr, Handle, Out, Stream};
use crate::abi::status::*;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::memory::Kind;

fn allocate(
    driver: &mut Driver,
    api: &str,
    out: Out<Addr>,
    bytes: usize,
    pool: Handle,
    owner: Owner,
    stream: Stream,
) -> Res {
    if out.is_null() || bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let device = driver.pool(pool)?.local()?.device;
    let owner = Owner { device, ..owner };
    let address = match driver.capture_of(stream)? {
        Some(capture) => driver.capture_allocation(capture, bytes as u64, owner)?,
        None => driver.allocate(api, Kind::Pool(pool), bytes as u64, owner)?,
    };
    out.put(address)
}

driver_api! {
    fn cuMemAllocAsync(driver; out: Out<Addr>, bytes: usize, stream: Stream) [cuMemAllocAsync_ptsz] {
        let owner = driver.stream_owner(stream)?;
        let pool = driver.device(owner.device)?.pool;
        allocate(driver, "cuMemAllocAsync", out, bytes, pool, owner, stream)
    }

    fn cuMemAllocFromPoolAsync(driver; out: Out<Addr>, bytes: usize, pool: Handle, stream: Stream)
        [cuMemAllocFromPoolAsync_ptsz] {
        let owner = driver.stream_owner(stream)?;
        allocate(driver, "cuMemAllocFromPoolAsync", out, bytes, pool, owner, stream)
    }

    fn cuMemFreeAsync(driver; address: Addr, stream: Stream) [cuMemFreeAsync_ptsz] {
        driver.stream_owner(stream)?;
        if let Some(capture) = driver.capture_of(stream)? {
            return driver.capture_free(capture, address);
        }
        match driver.blocks.get(&address).map(|b| b.kind) {
            Some(
                Kind::Pool(_)
                | Kind::Graph
                | Kind::Device
                | Kind::Managed
                | Kind::Foreign { from_pool: true, .. },
            ) => driver.end_block("cuMemFreeAsync", address),
            _ => Err(INVALID_VALUE),
        }
    }
}
