//! What is known about an address.

use std::ffi::c_void;

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::memory::{Block, Kind};

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Writes an attribute of the block that `address` lies in.
fn write(
    driver: &Driver,
    out: Out<c_void>,
    attribute: i32,
    address: Addr,
    start: Addr,
    block: &Block,
) -> Res {
    let physical = match block.kind {
        Kind::Map(id) => driver.physical.get(&id),
        _ => None,
    };
    let on_host = block.kind.on_host() || physical.is_some_and(|p| p.device() < 0);
    let flag = |yes: bool| out.cast::<u32>().put(yes.into());
    match attribute {
        1 => {
            let primary = driver.devices.get(block.device as usize).map_or(0, |d| d.primary.handle);
            out.cast::<Handle>().put(if block.context == 0 { primary } else { block.context })
        }
        2 => out.cast::<u32>().put(if on_host { HOST } else { DEVICE }),
        3 => out.cast::<Addr>().put(address),
        4 if block.kind.shared_with_host() => out.cast::<Addr>().put(address),
        4 => {
            out.cast::<Addr>().put(0)?;
            Err(INVALID_VALUE)
        }
        5 => Err(NOT_SUPPORTED),
        6 => flag(block.sync_operations),
        7 => out.cast::<u64>().put(block.id),
        8 => flag(block.kind == Kind::Managed),
        9 => out.cast::<i32>().put(block.device),
        10 => flag(block.kind == Kind::Device),
        11 => out.cast::<Addr>().put(start),
        12 => out.cast::<usize>().put(block.requested as usize),
        13 => flag(true),
        14 => out.cast::<u64>().put(physical.map_or(0, |p| p.props.handle_types as u64)),
        15 => flag(false),
        16 => out.cast::<u32>().put(if matches!(block.kind, Kind::Map(_)) { block.flags } else { 3 }),
        17 => out.cast::<Handle>().put(if let Kind::Pool(pool) = block.kind { pool } else { 0 }),
        18 => out.cast::<usize>().put(block.size as usize),
        19 => out.cast::<Addr>().put(start),
        20 => out.cast::<u64>().put(block.id),
        21 => flag(false),
        _ => Err(INVALID_VALUE),
    }
}

driver_api! {
    fn cuPointerGetAttribute(driver; out: Out<c_void>, attribute: i32, address: Addr) {
        let (start, block) = driver.find(address).ok_or(INVALID_VALUE)?;
        write(driver, out, attribute, address, start, block)
    }

    /// Unlike the single form, an unknown address is no error: every attribute is its null.
    fn cuPointerGetAttributes(driver; count: u32, attributes: In<i32>, outs: Out<Out<c_void>>, address:
        Addr) {
        for (i, attribute) in attributes.list(count as usize)?.into_iter().enumerate() {
            let out = outs.at(i)?;
            let known = match driver.find(address) {
                Some((start, block)) => write(driver, out, attribute, address, start, block).is_ok(),
                None => false,
            };
            if !known {
                match attribute {
                    2 | 6 | 8 | 10 | 13 | 15 | 16 | 21 => out.cast::<u32>().put(0)?,
                    9 => out.cast::<i32>().put(-2)?,
                    1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => out.cast::<u64>().put(0)?,
                    _ => return Err(INVALID_VALUE),
                }
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(driver; value: In<u32>, attribute: i32, address: Addr) {
        let (_, block) = driver.find_mut(address).ok_or(INVALID_VALUE)?;
        if attribute != 6 {
            return Err(INVALID_VALUE);
        }
        block.sync_operations = value.get()? != 0;
        Ok(())
    }
}
