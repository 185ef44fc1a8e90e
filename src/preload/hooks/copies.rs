//! Copies between host and device: no memory begins or ends with them, but a program that allocates seldom shows by them
//! where its loop comes round. A server copies each request in, and its answer out.

use crate::analysis::loop_steps;
use crate::hooks::hooks;
use crate::shield::shield;
use crate::state;

hooks! {
    /// Any copy of at most eight words, see `untracked::count`.
    fn copy(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
    ) => |call| {
        if state::is_recording() && loop_steps::wants_copies() {
            shield(loop_steps::copied);
        }
        call.pass()
    };
}
