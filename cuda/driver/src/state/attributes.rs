//! Device attributes: those of a data-centre part of compute capability 8.0, by their documented numbers.

use crate::abi::status::*;
use crate::state::driver::Driver;

/// Attributes and their values. Documented ones that are not here are 0.
const TABLE: &[(i32, i32)] = &[
    (1, 1024),          // threads per block
    (2, 1024),          // block dimensions
    (3, 1024),          //
    (4, 64),            //
    (5, i32::MAX),      // grid dimensions
    (6, 65535),         //
    (7, 65535),         //
    (8, 48 << 10),      // shared memory per block
    (9, 64 << 10),      // constant memory
    (10, WARP),         //
    (11, i32::MAX),     // largest pitch
    (12, 64 << 10),     // registers per block
    (13, 1_410_000),    // clock, kHz
    (14, 512),          // texture alignment
    (15, 1),            // overlap
    (16, PROCESSORS),   //
    (19, 1),            // can map host memory
    (21, 131_072),      // texture and surface sizes, to 30 and 42 to 77
    (22, 131_072),      //
    (23, 65536),        //
    (24, 16384),        //
    (25, 16384),        //
    (26, 16384),        //
    (27, 32768),        //
    (28, 32768),        //
    (29, 2048),         //
    (30, 512),          //
    (31, 1),            // concurrent kernels
    (32, 1),            // ECC
    (36, 1_593_000),    // memory clock, kHz
    (37, 5120),         // memory bus width
    (38, 40 << 20),     // L2
    (39, 2048),         // threads per processor
    (40, 3),            // copy engines
    (41, 1),            // unified addressing
    (42, 32768),        //
    (43, 2048),         //
    (45, 32768),        //
    (46, 32768),        //
    (47, 8192),         //
    (48, 8192),         //
    (49, 32768),        //
    (51, 32),           // texture pitch alignment
    (52, 32768),        //
    (53, 32768),        //
    (54, 2046),         //
    (55, 32768),        //
    (56, 131_072),      //
    (57, 65536),        //
    (58, 16384),        //
    (59, 16384),        //
    (60, 16384),        //
    (61, 32768),        //
    (62, 2048),         //
    (63, 32768),        //
    (64, 32768),        //
    (65, 2048),         //
    (66, 32768),        //
    (67, 32768),        //
    (68, 2046),         //
    (69, 1 << 28),      //
    (70, 131_072),      //
    (71, 65000),        //
    (72, 2_097_120),    //
    (73, 32768),        //
    (74, 32768),        //
    (77, 32768),        //
    (78, 1),            // stream priorities
    (79, 1),            // global L1
    (80, 1),            // local L1
    (81, 164 << 10),    // shared memory per processor
    (82, 64 << 10),     // registers per processor
    (83, 1),            // managed memory
    (87, 2),            // single to double ratio
    (89, 1),            // concurrent managed access
    (90, 1),            // compute preemption
    (91, 1),            // host pointer of registered memory
    (92, 1),            // stream memory operations
    (93, 1),            //
    (94, 1),            //
    (95, 1),            // cooperative launch
    (97, 163 << 10),    // shared memory per block, opt in
    (99, 1),            // host register
    (102, 1),           // virtual memory management
    (103, 1),           // handles as file descriptors
    (106, BLOCKS),      // blocks per processor
    (107, 1),           // compression
    (108, 26_214_400),  // persisting L2
    (109, 134_213_632), // access policy window
    (111, 1 << 10),     // shared memory reserved per block
    (112, 1),           // sparse arrays
    (115, 1),           // memory pools
    (121, 1),           // arrays without memory
    (122, 1),           // 64-bit stream memory operations
    (123, 1),           //
    (125, 1),           // IPC events
    (126, 1),           // memory sync domains
    (131, -1),          // NUMA node
    (132, 1),           // multicast
    (134, -1),          // host NUMA node
];
const LAST: i32 = 160;
pub const WARP: i32 = 32;
pub const PROCESSORS: i32 = 108;
pub const BLOCKS: i32 = 32;
pub const THREADS: i32 = 2048;

/// Largest shared memory a block may opt in to on capability 9.0.
const SHARED_90: i32 = 227 << 10;

impl Driver {
    /// Returns a device attribute by its documented number.
    pub fn attribute(&self, attribute: i32, device: i32) -> Res<i32> {
        let hopper = self.cc.0 >= 9;
        Ok(match attribute {
            33 => self.devices.get(device as usize).map_or(0, |d| d.number as i32 + 1), // PCI bus
            75 => self.cc.0,
            76 => self.cc.1,
            97 if hopper => SHARED_90,
            120 | 127 if hopper => 1, // cluster launch, tensor maps
            1..=LAST => TABLE.iter().find(|row| row.0 == attribute).map_or(0, |row| row.1),
            _ => return Err(INVALID_VALUE),
        })
    }
}
