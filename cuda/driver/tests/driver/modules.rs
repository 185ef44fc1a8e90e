//! What device code costs.

use crate::support::*;

const CODE: u64 = 2 * MIB;

fn image() -> u64 {
    static IMAGE: [u8; 8] = [0; 8];
    IMAGE.as_ptr() as u64
}

#[test]
fn a_module_costs_its_context_memory() {
    alone("modules::a_module_costs_its_context_memory", &[("SIMGPU_MEM", "6M")], || {
        context();
        let first = result("cuModuleLoadData", &[image()]);
        assert_eq!(used(), CODE);
        let function = result("cuModuleGetFunction", &[first, c"k".as_ptr() as u64]);
        ok("cuLaunchKernel", &[function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0]);
        assert_eq!(used(), CODE, "once, not per function or launch");
        let second = result("cuModuleLoadDataEx", &[image(), 0, 0, 0]);
        result("cuModuleLoadFatBinary", &[image()]);
        let mut word = 0u64;
        assert_eq!(call("cuModuleLoadData", &[at(&mut word), image()]), OUT_OF_MEMORY);
        ok("cuModuleUnload", &[second]);
        assert_eq!(used(), 2 * CODE);
        let other = result("cuCtxCreate_v2", &[0, 0]);
        result("cuModuleLoadData", &[image()]);
        assert_eq!(used(), 3 * CODE);
        ok("cuCtxDestroy_v2", &[other]);
        assert_eq!(used(), 2 * CODE, "released with its context");
        ok("cuModuleUnload", &[first]);
        assert_eq!(used(), CODE);
    });
}

#[test]
fn a_library_costs_each_context_that_uses_it() {
    alone("modules::a_library_costs_each_context_that_uses_it", &[], || {
        context();
        let library = result("cuLibraryLoadData", &[image(), 0, 0, 0, 0, 0, 0]);
        let kernel = result("cuLibraryGetKernel", &[library, c"k".as_ptr() as u64]);
        assert_eq!(used(), 0, "nothing of it was used yet");
        ok("cuLaunchKernel", &[kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0]);
        ok("cuLaunchKernel", &[kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0]);
        assert_eq!(result("cuLibraryGetModule", &[library]), library);
        assert_eq!(used(), CODE);
        let global = |library| {
            let (mut address, mut bytes) = (0u64, 0u64);
            let name = c"v".as_ptr() as u64;
            ok("cuLibraryGetGlobal", &[at(&mut address), at(&mut bytes), library, name]);
            address
        };
        let other = result("cuCtxCreate_v2", &[0, 0]);
        let theirs = global(library);
        assert_eq!(used(), 2 * CODE + 512, "its code and its variable");
        ok("cuCtxDestroy_v2", &[other]);
        assert_eq!(used(), CODE);
        let ours = global(library);
        assert_eq!(global(library), ours);
        let found = call("cuMemsetD8_v2", &[ours, 0, 4]);
        assert_eq!(found, 0, "{theirs:#x} ended with its context, {ours:#x} is this one's");
        ok("cuLibraryUnload", &[library]);
        assert_eq!(used(), 0);
    });
}
