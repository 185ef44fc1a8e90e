//! The model of a report: what JSON writes, and what its schema (feature `schema`) is derived from; the comments here are
//! the schema's descriptions. Knows no wording and no layout.

use serde::Serialize;

use super::steps::Steps;
use super::suppress::Suppressed;
use crate::ledger::verdict::{Confidence, Kind};
use crate::symbols::{FrameKind, NamedFrame};

#[cfg(feature = "schema")]
use super::schema;
#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The schema's name; fields may be added under it, never renamed.
pub const SCHEMA: &str = "leaktrace.report/1";

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// It exited by itself, with whatever status.
    Clean,
    /// It was killed, or crashed.
    Killed,
    /// Another program took its place by `exec`.
    Replaced,
    /// leaktrace was detached from it; the program went on.
    Detached,
    /// It was still running when the recording was read.
    #[default]
    Running,
}

/// What `leaktrace report --format json` writes. Fields in `_bytes` are bytes, those in `_s` seconds; steps count from 1.
/// Fields may be added, never renamed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "leaktrace report"))]
pub struct Report {
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    pub program: Program,
    pub devices: Vec<Device>,
    /// Pinned host memory live at the reported moment, of all devices.
    pub host_bytes: u64,
    /// Pinned host memory live at the very end of a finished run, after its teardown.
    pub host_live_bytes: u64,
    pub steps: Steps,
    /// What is a leak, or may be one, the most certain first.
    #[cfg_attr(feature = "schema", schemars(transform = schema::of_findings))]
    pub findings: Vec<Finding>,
    /// What looks like a finding and is none.
    #[cfg_attr(feature = "schema", schemars(transform = schema::of_non_leaks))]
    pub non_leaks: Vec<Finding>,
    /// Findings left out by the suppressions file, by rule.
    pub suppressed: Vec<Suppressed>,
    /// What was live at the reported moment, largest first. Segments are not listed: their blocks are.
    pub retained: Vec<Retained>,
    /// The smaller lines that `retained` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retained_unlisted: Option<Unlisted>,
    /// The last failed allocations.
    pub out_of_memory: Vec<OutOfMemory>,
    /// How often an allocation failed for want of memory; `out_of_memory` keeps the last few.
    pub out_of_memory_count: u64,
    /// What was live at the peak; only with `--at peak`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<Peak>,
    pub coverage: Coverage,
    /// How often the heap was searched for holders, and what that cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_searches: Option<Searches>,
    /// What the recorder or the reader could not do, one line each.
    pub warnings: Vec<String>,
    /// The step asked for: `devices` and `retained` are as of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The step asked for with `--since`: `retained` is what was allocated after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u32>,
    /// What was live at the end by the step it was allocated in; only with `--by cohort`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<Cohort>,
}

/// The live blocks that one step allocated.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Cohort {
    pub step: u32,
    pub bytes: u64,
    pub blocks: u64,
    /// The line that allocated most of it; `null`: no stack was taken.
    pub allocated_at: Option<Location>,
}

/// The traced process.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Program {
    pub argv: Vec<String>,
    pub pid: u32,
    pub host: String,
    /// The rank in a distributed job; `null`: none was set.
    pub rank: Option<String>,
    /// The run that it belongs to, as the variable by which somebody named it: `SLURM_JOB_ID=4711`; `null`: nobody did.
    pub run: Option<String>,
    pub end: End,
    /// The status it exited with; `null`: not known, or it has not exited.
    pub exit_status: Option<i32>,
    /// The type of the exception that nothing caught, in the interpreter's main thread; `null`: none, or not known.
    pub exception: Option<String>,
    pub duration_s: f64,
    /// When the recording began, in seconds since 1970; 0: not known.
    pub began_s: f64,
    pub exe: String,
    /// The interpreter's version; `null`: no Python was seen.
    pub python: Option<String>,
    /// Its working directory.
    pub cwd: String,
    /// The folder that text shows paths relative to: the working directory, or that of a script which lies elsewhere.
    #[serde(skip)]
    pub base: String,
}

/// One device at the reported moment.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Device {
    pub index: u8,
    pub name: String,
    /// 0: not known.
    pub total_bytes: u64,
    pub peak_bytes: u64,
    /// `block_bytes` and `driver_allocation_bytes` together.
    pub live_bytes: u64,
    /// Live blocks that were allocated before leaktrace was attached, by their allocator's account; a part of
    /// `reserved_bytes` only. Absent: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub before_attaching_bytes: u64,
    /// What caching allocators and memory pools hold from the driver, used or not.
    pub reserved_bytes: u64,
    /// In use by the driver's account, but allocated by no recorded call; `null`: the driver was not asked.
    pub unattributed_bytes: Option<u64>,
    /// Live blocks of caching allocators.
    pub block_bytes: u64,
    /// Live driver allocations that no caching allocator cuts up.
    pub driver_allocation_bytes: u64,
    /// In use of the device's memory pools by the driver's account (allocations from them are part of
    /// `driver_allocation_bytes`).
    pub pool_used_bytes: u64,
    /// Live pinned host memory.
    pub host_bytes: u64,
    /// Memory of others that this process has mapped: opened by IPC, imported, registered. Part of no other figure.
    pub external_bytes: u64,
    /// Programs compiled for the device, by their compiler's own account: no part of any other figure.
    pub code_bytes: u64,
    /// What the driver gave and did not get back; of a finished run at the very end, after its teardown.
    pub driver_live_bytes: u64,
    /// Steps until it is full at the rate of everything that grows on it; `null`: nothing grows.
    pub steps_to_oom: Option<u64>,
}

/// A line of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Location {
    pub file: String,
    /// `null`: not known.
    pub line: Option<u32>,
    pub function: String,
}

/// A frame of a stack; stacks begin with the innermost. Frames before an autograd frame ran in the backward pass of those
/// behind it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Frame {
    #[serde(flatten)]
    pub frame: NamedFrame,
    /// The user's own code.
    #[serde(skip)]
    pub own: bool,
    /// Frames of the interpreter or the dispatcher that are left out behind this one; absent: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub hidden_frames: u32,
}

fn is_zero<N: Default + PartialEq>(n: &N) -> bool {
    *n == N::default()
}

/// A line, reached by a call path, that allocates.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Site {
    /// Its numbers in the ledger: each output of a compiled function has one.
    #[serde(skip)]
    pub numbers: Vec<u32>,
    /// The innermost frame in the user's own code; `null`: no stack was taken.
    pub allocated_at: Option<Location>,
    /// The innermost frame of a package other than PyTorch that `allocated_at` called, which tells causes apart that share
    /// its line; `null`: none.
    pub library_at: Option<Location>,
    pub bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// The driver or runtime call that allocated; absent for blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_point: Option<String>,
    pub stack: Vec<Frame>,
    /// Other native stacks from the same Python stack to the allocator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_native_stacks: Vec<Vec<Frame>>,
    /// The forward line in whose backward pass it allocated; `null`: it was not in one, or that is not known.
    pub forward_site: Option<Location>,
}

/// Who keeps blocks alive.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Holder {
    /// The references that lead to the blocks: `main() local `losses`[*]`.
    pub path: String,
    pub bytes: u64,
    pub blocks: u64,
    /// The step that had just ended when the heap was searched; 0: it is not known.
    pub step: u32,
    /// `unbounded`: it can take in more for ever; `bounded`: it can have `max_entries` entries; `limited`: it may
    /// have so many, the program compares its length with them; `unreachable`: nothing alive
    /// refers to it, and it waits for garbage collection; `replaced`: a variable whose values are not made of the ones before;
    /// `null`: not known.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["unbounded", "bounded", "limited", "unreachable", "replaced", null])))]
    pub retention: Option<&'static str>,
    /// The entries that a bounded holder can have, and a limited one may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u64>,
}

/// Searches of the heap for holders, and how long the program waited for them.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Searches {
    pub count: u64,
    pub seconds: f64,
    pub longest_s: f64,
}

/// One cause: sites whose blocks live and die together, or hang on one holder.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Finding {
    pub kind: Kind,
    pub confidence: Confidence,
    /// That of the first site; `null`: host memory of no device.
    pub device: Option<u8>,
    /// Where it is on several devices, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<u8>,
    /// `block`: of a caching allocator; `driver`: a driver allocation that none cuts up; `host`: pinned host memory;
    /// `external`: opened by IPC, imported or registered; `code`: programs compiled for a device.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["block", "driver", "host", "external", "code"])))]
    pub layer: &'static str,
    /// Which steps the figures per step, and those until a device is full, are of: `all`; `training`: those that train;
    /// `other`: iterations of loops in which nothing trains.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["all", "training", "other"])))]
    pub counted_steps: &'static str,
    /// What one step that adds anything adds (median); of carry-over what one step carries.
    pub bytes_per_step: f64,
    /// The 95 % interval of that median; `null` where there are no values of single steps.
    pub bytes_per_step_interval: Option<[f64; 2]>,
    /// What one step that adds anything adds (median), in blocks.
    pub blocks_per_step: f64,
    /// The share of steps that add anything: 1 every step, 0.1 every tenth.
    pub growth_step_ratio: f64,
    /// The length of a sawtooth; `null`: it is none.
    pub period_steps: Option<f64>,
    /// The mean slope, over all of `counted_steps`, of what is never freed.
    pub growth_bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Distinct steps that live blocks were allocated in.
    pub cohorts: u32,
    /// The step that the oldest live block was allocated in; 0: before the first.
    pub oldest_step: u32,
    /// The first step it was seen in; `null`: not known.
    pub first_step: Option<u32>,
    /// How much lower the peak would be without it.
    pub peak_reduction_bytes: u64,
    /// The step that shows it: of an unload, of the latest release; `null`: there is no such step.
    pub evidence_step: Option<u32>,
    /// What the caching allocator took from the driver while blocks grew; of fragmentation, what cannot be returned to the
    /// driver; `null`: nothing to tell.
    pub reserved_growth_bytes: Option<i64>,
    /// What the latest steps add on average, where they add more and more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_bytes_per_step: Option<f64>,
    /// How much of that a step adds, where it is far more than what the blocks have.
    #[serde(skip)]
    pub reserved_bytes_per_step: Option<f64>,
    /// What it can grow to, where its holders are bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_bytes: Option<u64>,
    /// The number of entries beyond which the program drops or refuses more, by its source, where that bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What it has is freed, but ever later.
    #[serde(skip)]
    pub ever_later: bool,
    /// Garbage collections have freed some of it.
    #[serde(skip)]
    pub is_collected: bool,
    /// Garbage collection is known to be switched off.
    #[serde(skip)]
    pub collector_is_off: bool,
    /// Steps until a device is full at the rate of this finding alone; `null`: it does not grow on a known device.
    pub steps_to_oom: Option<u64>,
    /// Those with a line of the program first, of these the largest first.
    pub sites: Vec<Site>,
    /// Who holds it, most bytes first; empty: no search found anybody.
    pub holders: Vec<Holder>,
    /// Why nobody is named in `holders`; absent where somebody is, and where nobody can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders_unknown: Option<String>,
    /// One sentence for people.
    pub explanation: String,
    /// Why it is what `kind` says, without its line and its figures.
    pub why: String,
    /// What its sites retained at the end of steps all over the run, oldest first, less what they set up first and have
    /// beside it; of unattributed growth, what was in use.
    pub retained_over_steps: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Point {
    pub step: u32,
    pub bytes: u64,
}

/// What a site has live.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Retained {
    /// The site's number in the ledger.
    #[serde(skip)]
    pub number: u32,
    /// The innermost frame in the user's own code; `null`: no stack was taken.
    pub allocated_at: Option<Location>,
    /// As a site's `library_at`; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library_at: Option<Location>,
    /// As a finding's `layer`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["block", "driver", "host", "external", "code"])))]
    pub layer: &'static str,
    /// `null`: host memory of no device.
    pub device: Option<u8>,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// The driver or runtime call that allocated; absent for blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_point: Option<String>,
    pub stack: Vec<Frame>,
    /// Who held it as of the last heap search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

/// Lines that are not listed, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Unlisted {
    pub lines: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
}

/// A failed allocation, and what was live at that moment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OutOfMemory {
    pub device: u8,
    pub requested_bytes: u64,
    pub allocated_bytes: u64,
    /// The step it happened in.
    pub step: u32,
    /// The line whose allocation failed; `null`: no stack was taken.
    pub allocated_at: Option<Location>,
    pub stack: Vec<Frame>,
    /// Of `allocated_bytes`, what the step before allocated and had not freed yet.
    pub carry_over_bytes: u64,
    /// What caching allocators had from the driver.
    pub reserved_bytes: u64,
    /// Of `reserved_bytes`, what no block used.
    pub free_in_segments_bytes: u64,
    /// The largest free block of a segment. A request larger than this and no larger than `free_in_segments_bytes` failed of
    /// fragmentation.
    pub largest_free_block_bytes: u64,
    /// A few sentences for people: who asked for how much, and where the memory was.
    pub explanation: String,
    /// Who held what was live as of the last heap search, most bytes first.
    pub holders: Vec<Holder>,
    /// What was live at that moment, largest first.
    pub retained: Vec<Retained>,
}

/// The moment when the most memory was live on the device that had most.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Peak {
    pub device: u8,
    /// The step it lies in.
    pub step: u32,
    pub live_bytes: u64,
    pub reserved_bytes: u64,
    /// What was live at that moment, largest first.
    pub retained: Vec<Retained>,
}

/// How far the figures can be relied on.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Coverage {
    /// What could not be seen, one line each.
    pub gaps: Vec<String>,
    /// Frees of memory whose allocation was not recorded.
    pub frees_without_allocation: u64,
    /// Events that found no room in the recording.
    pub dropped_events: u64,
    /// Whether the blocks agree with the caching allocator's own total; `null`: nothing to compare with.
    pub ledger_matches_allocator: Option<bool>,
    /// Allocations at an address whose last use was not seen to be freed.
    pub allocations_without_free: u64,
    /// Allocations that ended with their context.
    pub freed_with_context: u64,
    /// Calls that use memory without saying how much, by name.
    pub untracked_calls: Vec<UntrackedCall>,
}

/// A call with untracked memory use.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct UntrackedCall {
    pub entry_point: String,
    pub calls: u64,
    /// The bytes that the calls passed; 0: none of them says.
    pub bytes: u64,
}

impl Report {
    /// Returns the report as one indented JSON document with a line end.
    pub fn to_json(&self) -> String {
        // Only maps with keys that are no strings can fail to be written; there are none.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl Frame {
    /// Returns where the frame is.
    pub fn location(&self) -> Location {
        Location {
            file: self.frame.file.clone(),
            line: self.frame.line,
            function: self.frame.function.clone(),
        }
    }

    /// Returns whether this is a Python frame.
    pub fn is_python(&self) -> bool {
        self.frame.kind == FrameKind::Python
    }
}
