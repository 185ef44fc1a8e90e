//! Every family of driver memory, begun and ended in every legal way, against the simulated GPU's own log.

use crate::common::Run;
use crate::common::programs::families;
use crate::common::report::agrees_at_instants;

/// Random calls; the report is compared with the log at each of 20 instants and at the end.
#[track_caller]
fn compare(flavour: &str, seed: u64, threads: u32, context: &str, end: &str) {
    let args = [&seed.to_string(), "3000", "20", &threads.to_string(), context, end];
    let ran = Run::new(families(flavour)).simulated().traced().args(args).run().success();
    agrees_at_instants(&ran, 20);
}

#[test]
fn by_linking() {
    compare("link", 31, 1, "primary", "keep");
    compare("link", 32, 4, "own", "clean");
}

#[test]
fn by_dlsym() {
    compare("dlsym", 33, 1, "own", "destroy");
    compare("dlsym", 34, 4, "primary", "keep");
}

#[test]
fn by_get_proc_address() {
    compare("proc", 35, 1, "primary", "reset");
    compare("proc", 36, 4, "own", "keep");
}
