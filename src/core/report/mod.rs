//! The report: what is told of a recording, ready for any format. Knows findings, not CUDA; names come from `symbol`,
//! figures from `ledger`, and a format only writes down what stands here.

pub mod advice;
mod build;
pub mod column;
pub mod explain;
pub mod json;
mod marks;
pub mod phrases;
pub mod summary;
pub mod suppress;
#[cfg(test)]
mod tests;
pub mod text;

use serde::Serialize;

use crate::ledger::verdict::{Confidence, Kind};
use crate::symbols::{FrameKind, NamedFrame};

pub use build::{Asked, Run, whole};

/// The schema's name; fields may be added under it, never renamed.
pub const SCHEMA: &str = "leaktrace.report/1";

/// How the process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Clean,
    Killed,
    #[default]
    Running,
}

/// A report. Bytes are bytes, steps count from 1, seconds are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub program: Program,
    pub devices: Vec<Device>,
    /// Pinned host memory alive, of all devices.
    pub host_bytes: u64,
    /// The same at the very end of a finished run, after the teardown.
    pub host_live_bytes: u64,
    pub steps: Steps,
    pub findings: Vec<Finding>,
    pub non_leaks: Vec<Finding>,
    /// Findings left out because somebody lives with them, by rule.
    pub suppressed: Vec<suppress::Suppressed>,
    /// What was alive at the reported moment, largest first (segments are not listed: their blocks are).
    pub retained: Vec<Retained>,
    pub out_of_memory: Vec<OutOfMemory>,
    /// How often memory ran out; `out_of_memory` keeps the last few.
    pub out_of_memory_count: u64,
    pub coverage: Coverage,
    /// How often it was asked who holds what, and how long the program waited for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_searches: Option<Searches>,
    pub warnings: Vec<String>,
    /// Every frame of a stack is listed.
    #[serde(skip)]
    pub all_frames: bool,
    /// The step asked for: devices and retained are as of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What grew after this step was asked for: `retained` is the growth since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u32>,
    /// What was alive at the end by the step it was born in; only where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<Cohort>,
}

/// What is alive of one birth step.
#[derive(Clone, Debug, Serialize)]
pub struct Cohort {
    pub step: u32,
    pub bytes: u64,
    pub blocks: u64,
    /// The line with the most bytes of it.
    pub allocated_at: Option<Place>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Program {
    pub argv: Vec<String>,
    pub pid: u32,
    pub host: String,
    pub rank: Option<String>,
    pub end: End,
    pub duration_s: f64,
    /// When the recording began, in seconds since 1970; 0: not known.
    pub began_s: f64,
    pub exe: String,
    pub python: Option<String>,
    /// Its working directory: paths under it are shortened for people.
    pub cwd: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    pub index: u8,
    pub name: String,
    /// 0: not known.
    pub total_bytes: u64,
    pub peak_bytes: u64,
    pub live_bytes: u64,
    pub reserved_bytes: u64,
    pub unattributed_bytes: Option<u64>,
    pub block_bytes: u64,
    pub driver_allocation_bytes: u64,
    /// In use of the device's memory pools, as the driver counts it (what was asked for is part of `driver_allocation_bytes`).
    pub pool_used_bytes: u64,
    pub host_bytes: u64,
    /// Memory of others that this process holds on to: opened, imported, mapped. No part of any other figure.
    pub external_bytes: u64,
    /// What the driver had given and not got back; of a finished run at the very end, after the teardown.
    pub driver_live_bytes: u64,
    /// Until it is full, if all that grows on it goes on together; `null`: nothing does.
    pub steps_to_oom: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Steps {
    pub count: u32,
    /// What told of most of them; `null` if there were none.
    pub source: Option<&'static str>,
    /// Steps that are iterations of loops between those that the source tells of: evaluations, encoders that run first.
    pub phase_steps: u32,
    /// Where the loops are whose iterations are steps.
    pub loop_locations: Vec<String>,
    /// All that is recorded that could end steps, this among it: what `--steps-by` takes.
    pub step_sources: Vec<StepSource>,
    /// Iterations before the first step, which could not be told apart any more.
    pub unresolved_iterations: u32,
    /// The latest moments that go by a name, oldest first.
    pub annotations: Vec<Annotation>,
    /// The most frequent of them.
    pub annotation_counts: Vec<AnnotationCount>,
    /// The totals at the end of each step, the latest 10,000 at most, oldest first.
    pub series: Vec<Step>,
}

/// A moment that goes by a name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Annotation {
    /// The step that it lies in.
    pub step: u32,
    /// Seconds since the recording began; of a collection the latest moment before it that is known.
    pub at_s: f64,
    pub name: String,
    /// `mark` (the program set it), `range` (one that it named is over), `collection` (Python's collector freed memory) or
    /// `empty-cache`.
    pub kind: &'static str,
}

/// How often a mark came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnnotationCount {
    pub name: String,
    pub kind: &'static str,
    /// Of collections: in how many steps.
    pub count: u32,
}

/// What could end steps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepSource {
    /// `optimizer`, `loop:1` (the outermost recorded), …
    pub name: String,
    pub count: u32,
    /// Where the loops are, if it is of loops.
    pub loop_locations: Vec<String>,
}

/// The totals at the end of one step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    pub step: u32,
    /// Seconds since the recording began.
    pub at_s: f64,
    pub host_bytes: u64,
    pub devices: Vec<StepDevice>,
}

/// One device at the end of a step; the fields mean what they mean in [`Device`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepDevice {
    pub index: u8,
    pub live_bytes: u64,
    pub block_bytes: u64,
    pub pool_used_bytes: u64,
    pub reserved_bytes: u64,
    pub driver_live_bytes: u64,
    pub unattributed_bytes: Option<u64>,
}

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    pub file: String,
    pub line: Option<u32>,
    pub function: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Frame {
    #[serde(flatten)]
    pub frame: NamedFrame,
    /// The user's own code.
    #[serde(skip)]
    pub own: bool,
    /// Frames between this and the next one out that are left out, because they only lead from one to the other.
    #[serde(skip_serializing_if = "is_zero")]
    pub hidden_frames: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// Its number in the ledger.
    #[serde(skip)]
    pub number: u32,
    /// `null`: no stack was taken.
    pub allocated_at: Option<Place>,
    pub bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_point: Option<String>,
    pub stack: Vec<Frame>,
    /// Other native ways from the same Python stack to the allocator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_native_stacks: Vec<Vec<Frame>>,
    pub forward_site: Option<Place>,
}

/// Who keeps the blocks alive.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    pub path: String,
    pub bytes: u64,
    pub blocks: u64,
    /// When that was so: the step that had just ended.
    pub step: u32,
    /// What it does with what it has: it can take in more for ever (`open`), only so many entries (`bounded`), or is itself
    /// garbage that waits for the collector (`garbage`: nothing alive holds it). `null`: not known.
    pub retention: Option<&'static str>,
    /// The entries that a bounded one can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u64>,
}

/// Searches for holders.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Searches {
    pub count: u64,
    pub seconds: f64,
    pub longest_s: f64,
}

/// One cause.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub confidence: Confidence,
    pub device: Option<u8>,
    pub layer: &'static str,
    pub bytes_per_step: f64,
    /// With 95 % confidence `bytes_per_step` lies between these; `null` where there are no values of single steps.
    pub bytes_per_step_interval: Option<[f64; 2]>,
    pub blocks_per_step: f64,
    pub growth_step_ratio: f64,
    pub period_steps: Option<f64>,
    pub growth_bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub cohorts: u32,
    pub oldest_step: u32,
    /// The first step it was seen in.
    pub first_step: Option<u32>,
    pub peak_reduction_bytes: u64,
    /// The step that shows it: of an unload, of the latest release.
    pub evidence_step: Option<u32>,
    /// What the caching allocator took from the driver while blocks grew (of fragmentation: what is kept from going back).
    pub reserved_growth_bytes: Option<i64>,
    pub steps_to_oom: Option<u64>,
    pub sites: Vec<Site>,
    pub holders: Vec<Holder>,
    pub explanation: String,
    /// What its sites retained at the end of steps all over the run, oldest first; of what grows unseen, what was in use.
    pub retained_over_steps: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    pub step: u32,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Retained {
    /// The site's number in the ledger.
    #[serde(skip)]
    pub number: u32,
    pub allocated_at: Option<Place>,
    pub layer: &'static str,
    /// `null`: host memory of no device.
    pub device: Option<u8>,
    pub live_bytes: u64,
    pub live_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_point: Option<String>,
    pub stack: Vec<Frame>,
    /// Who held it when somebody last looked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OutOfMemory {
    pub device: u8,
    pub requested_bytes: u64,
    pub allocated_bytes: u64,
    /// The step it happened in.
    pub step: u32,
    /// The allocation that failed.
    pub allocated_at: Option<Place>,
    pub stack: Vec<Frame>,
    /// Of what was alive, how much was the step before's and waited for its end (carry-over).
    pub carry_over_bytes: u64,
    /// What caching allocators had from the driver, how much of it no block used, and the largest piece of that: where the
    /// whole would have done and the pieces did not, it was fragmentation.
    pub reserved_bytes: u64,
    pub free_in_segments_bytes: u64,
    pub largest_free_block_bytes: u64,
    /// What was alive at that moment, largest first.
    pub retained: Vec<Retained>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Coverage {
    /// What could not be seen, one line each.
    pub gaps: Vec<String>,
    pub frees_without_allocation: u64,
    pub dropped_events: u64,
    /// `null`: nothing to compare with.
    pub ledger_matches_allocator: Option<bool>,
    pub allocations_without_free: u64,
    pub freed_with_context: u64,
    /// Calls that take memory without saying how much, by name.
    pub untracked_calls: Vec<UntrackedCall>,
}

/// How often such a call was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UntrackedCall {
    pub entry_point: String,
    pub calls: u64,
    /// The bytes that the calls told of; 0 where they tell none.
    pub bytes: u64,
}

impl Frame {
    /// Where it is, for people: the path shortened.
    pub fn place(&self) -> Place {
        Place { file: self.frame.file.clone(), line: self.frame.line, function: self.frame.function.clone() }
    }

    /// False if all that is known is the place in the file.
    pub fn has_name(&self) -> bool {
        !self.frame.function.contains("+0x")
    }

    /// A Python frame.
    pub fn is_python(&self) -> bool {
        self.frame.kind == FrameKind::Python
    }
}
