//! cudaDeviceProp: one table of fields and their offsets in the struct of either major.

use crate::driver::D;
use crate::error::{Code, Outcome};
use crate::{state, version};
use std::ffi::{c_char, c_void};

/// The struct's size: CUDA 13, CUDA 12, and what callers of the older name have room for.
const SIZE_13: usize = 1008;
const SIZE_12: usize = 1032;
const SIZE_OLD: usize = 728;

const NAME: usize = 0;
const NAME_ROOM: i32 = 256;
const UUID: usize = 256;
const TOTAL_MEMORY: usize = 288;

/// The offset of a field that the struct of this major lacks.
const NONE: usize = usize::MAX;

struct Field {
    /// CUdevice_attribute.
    attribute: i32,
    at_12: usize,
    at_13: usize,
    wide: bool,
}

const fn int(attribute: i32, at_12: usize, at_13: usize) -> Field {
    Field { attribute, at_12, at_13, wide: false }
}

const fn long(attribute: i32, at_12: usize, at_13: usize) -> Field {
    Field { attribute, at_12, at_13, wide: true }
}

#[rustfmt::skip]
static FIELDS: &[Field] = &[
    long(8, 296, 296), // shared memory per block
    int(12, 304, 304), // registers per block
    int(10, 308, 308), // warp size
    long(11, 312, 312), // largest pitch
    int(1, 320, 320), // threads per block
    int(2, 324, 324), int(3, 328, 328), int(4, 332, 332), // block dimensions
    int(5, 336, 336), int(6, 340, 340), int(7, 344, 344), // grid dimensions
    int(13, 348, NONE), // clock rate
    long(9, 352, 352), // constant memory
    int(75, 360, 360), int(76, 364, 364), // compute capability
    long(14, 368, 368), long(51, 376, 376), // texture alignment, texture pitch alignment
    int(15, 384, NONE), // device overlap
    int(16, 388, 384), // multiprocessors
    int(17, 392, NONE), // kernel time limit
    int(18, 396, 388), // integrated
    int(19, 400, 392), // can map host memory
    int(20, 404, NONE), // compute mode
    int(21, 408, 396), int(77, 412, 400), int(69, 416, NONE), // 1D textures: plain, mipmap, linear
    int(22, 420, 404), int(23, 424, 408), // 2D texture
    int(73, 428, 412), int(74, 432, 416), // 2D mipmap
    int(70, 436, 420), int(71, 440, 424), int(72, 444, 428), // 2D linear
    int(45, 448, 432), int(46, 452, 436), // 2D gather
    int(24, 456, 440), int(25, 460, 444), int(26, 464, 448), // 3D texture
    int(47, 468, 452), int(48, 472, 456), int(49, 476, 460), // 3D alternate
    int(52, 480, 464), // cubemap
    int(42, 484, 468), int(43, 488, 472), // 1D layered
    int(27, 492, 476), int(28, 496, 480), int(29, 500, 484), // 2D layered
    int(53, 504, 488), int(54, 508, 492), // cubemap layered
    int(55, 512, 496), // 1D surface
    int(56, 516, 500), int(57, 520, 504), // 2D surface
    int(58, 524, 508), int(59, 528, 512), int(60, 532, 516), // 3D surface
    int(61, 536, 520), int(62, 540, 524), // 1D layered surface
    int(63, 544, 528), int(64, 548, 532), int(65, 552, 536), // 2D layered surface
    int(66, 556, 540), // cubemap surface
    int(67, 560, 544), int(68, 564, 548), // cubemap layered surface
    long(30, 568, 552), // surface alignment
    int(31, 576, 560), // concurrent kernels
    int(32, 580, 564), // ECC
    int(33, 584, 568), int(34, 588, 572), int(50, 592, 576), // PCI bus, device, domain
    int(35, 596, 580), // TCC driver
    int(40, 600, 584), // copy engines
    int(41, 604, 588), // unified addressing
    int(36, 608, NONE), // memory clock
    int(37, 612, 592), // memory bus width
    int(38, 616, 596), int(108, 620, 600), // L2 cache, its persisting part
    int(39, 624, 604), // threads per multiprocessor
    int(78, 628, 608), // stream priorities
    int(79, 632, 612), int(80, 636, 616), // global and local L1
    long(81, 640, 624), int(82, 648, 632), // shared memory and registers per multiprocessor
    int(83, 652, 636), // managed memory
    int(84, 656, 640), int(85, 660, 644), // multi-GPU board, its group
    int(86, 664, 648), // native host atomics
    int(87, 668, NONE), // single to double ratio
    int(88, 672, 652), // pageable memory access
    int(89, 676, 656), // concurrent managed access
    int(90, 680, 660), // compute preemption
    int(91, 684, 664), // host pointer for registered memory
    int(95, 688, 668), int(96, 692, NONE), // cooperative launch, on several devices
    long(97, 696, 672), // opt-in shared memory per block
    int(100, 704, 680), // pageable access by host page tables
    int(101, 708, 684), // direct managed access from host
    int(106, 712, 688), // blocks per multiprocessor
    int(109, 716, 692), // access policy window
    long(111, 720, 696), // reserved shared memory per block
    int(99, 728, 704), // host register
    int(112, 732, 708), // sparse arrays
    int(113, 736, 712), // read-only host register
    int(114, 740, 716), // timeline semaphores
    int(115, 744, 720), // memory pools
    int(116, 748, 724), int(117, 752, 728), int(118, 756, 732), // GPUDirect RDMA, flush options, ordering
    int(119, 760, 736), // handle types of pools
    int(121, 764, 740), // deferred array mapping
    int(125, 768, 744), // IPC events
    int(120, 772, 748), // cluster launch
    int(129, 776, 752), // unified function pointers
];

unsafe fn fill(out: *mut u8, device: i32, size: usize) -> Outcome {
    state::valid(device)?;
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    out.write_bytes(0, size);
    D.device_name(out.add(NAME).cast::<c_char>(), NAME_ROOM, device)?;
    D.device_uuid(out.add(UUID).cast::<c_void>(), device)?;
    let mut total = 0;
    D.device_total(&mut total, device)?;
    out.add(TOTAL_MEMORY).cast::<usize>().write_unaligned(total);
    for field in FIELDS {
        let at = if version::major() >= 13 { field.at_13 } else { field.at_12 };
        let width = if field.wide { 8 } else { 4 };
        if at == NONE || at + width > size {
            continue;
        }
        let mut value = 0;
        // An attribute the driver does not know leaves its field 0.
        if D.device_attribute(&mut value, field.attribute, device).is_err() {
            continue;
        }
        if field.wide {
            out.add(at).cast::<i64>().write_unaligned(i64::from(value));
        } else {
            out.add(at).cast::<i32>().write_unaligned(value);
        }
    }
    Ok(())
}

export! {
    init fn cudaGetDeviceProperties_v2(out: *mut u8, device: i32) {
        fill(out, device, if version::major() >= 13 { SIZE_13 } else { SIZE_12 })
    }

    /// In CUDA 12 this name is kept for callers of CUDA 11, whose struct is shorter.
    init fn cudaGetDeviceProperties(out: *mut u8, device: i32) {
        fill(out, device, if version::major() >= 13 { SIZE_13 } else { SIZE_OLD })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field at a wrong offset would overlap its neighbour or leave its alignment.
    fn check(size: usize, offset: fn(&Field) -> usize) {
        let mut end = TOTAL_MEMORY + 8;
        for field in FIELDS.iter().filter(|field| offset(field) != NONE) {
            let (at, width) = (offset(field), if field.wide { 8 } else { 4 });
            assert_eq!(at % width, 0, "attribute {}", field.attribute);
            assert!(at >= end && at < end + 8, "attribute {} at {at}, after {end}", field.attribute);
            end = at + width;
        }
        assert!(end <= size);
    }

    #[test]
    fn fields_follow_each_other_in_both_layouts() {
        check(SIZE_12, |field| field.at_12);
        check(SIZE_13, |field| field.at_13);
    }
}
