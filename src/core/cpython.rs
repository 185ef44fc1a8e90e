//! The CPythons that are known, and the words for what is lost of others. What is known of a version stands in
//! the preload's rows of layouts and in the rows of opcodes; tests hold both against this.

use std::ops::RangeInclusive;

/// CPython 3.`minor`: of each the stacks, the objects, the collector and the bytecode are known.
pub const VERSIONS: RangeInclusive<u32> = 8..=15;

/// Free-threaded CPython 3.`minor`: the same is known of each, but the objects.
pub const FREE_THREADED: RangeInclusive<u32> = 13..=15;

/// What is lost where an interpreter's memory cannot be read.
pub const UNSEEN: &str =
    "Python stacks, holders, steps from loops and runs of the garbage collector are not seen";

/// What every coverage gap begins with that is an interpreter's: such a gap is said first. The HTML page goes by it
/// too.
const INTERPRETER: &str = "CPython ";

/// True of a coverage gap that comes from the interpreter: it bears on the whole report.
pub fn is_interpreters(gap: &str) -> bool {
    gap.starts_with(INTERPRETER)
}

/// Returns `3.8 to 3.15, free-threaded 3.13 to 3.15`.
pub fn versions() -> String {
    let range = |minors: RangeInclusive<u32>| format!("3.{} to 3.{}", minors.start(), minors.end());
    format!("{}, free-threaded {}", range(VERSIONS), range(FREE_THREADED))
}
