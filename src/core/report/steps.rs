//! The part of the model that is about steps: how they were told, what each held, what else happened. As `model`, it is
//! what JSON writes.

use serde::Serialize;

use crate::ledger::BoundarySource;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The steps of a run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Steps {
    pub count: u32,
    /// The step source of most of them: `optimizer`, `loop`, `backward`, `range`, `api`, `time`; `null`: there were none.
    pub source: Option<&'static str>,
    /// Steps among them that are loop iterations between those of the source: evaluations, encoders that run first.
    pub phase_steps: u32,
    /// Where the loops are whose iterations are steps, as `file:line`.
    pub loop_locations: Vec<LoopLocation>,
    /// All recorded step sources, the one in use among them: what `--steps-by` takes.
    pub step_sources: Vec<StepSource>,
    /// Loops that were seen where there is no step, those that did most first.
    pub unused_loops: Vec<UnusedLoop>,
    /// What came after the last step and is not judged; `null`: not much.
    pub after_last: Option<AfterLast>,
    /// Loop iterations before the first step that could not be told apart any more.
    pub unresolved_iterations: u32,
    /// The latest annotations, oldest first.
    pub annotations: Vec<Annotation>,
    /// The most frequent annotations.
    pub annotation_counts: Vec<AnnotationCount>,
    /// The totals at the end of each step, the latest 10,000 at most, oldest first.
    pub series: Vec<Step>,
}

impl Steps {
    /// Takes in that a source was chosen after the run: its loops are where the steps are, not those that were chosen then.
    pub fn read_by(&mut self, source: BoundarySource) {
        let name = source.to_string();
        if let Some(source) = self.step_sources.iter().find(|s| s.name == name) {
            self.loop_locations.clone_from(&source.loop_locations);
        }
    }
}

/// A loop whose iterations are no steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct UnusedLoop {
    /// As `file:line`.
    pub location: String,
    pub iterations: u64,
    /// Why they are no steps: `few`: there are too few of them; `builds`: they make a model; `framework`: the loop is
    /// the framework's own (PyTorch's over layers or parameters, a notebook kernel's); `idle`: others do the work.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["few", "builds", "framework", "idle"])))]
    pub reason: String,
}

/// A named moment of the run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Annotation {
    /// The step it lies in.
    pub step: u32,
    /// Seconds since the recording began; of a collection the latest known moment before it.
    pub at_s: f64,
    pub name: String,
    /// `user`: the program set it; `range`: a range that the program named is over; `gc`: Python's collector freed memory;
    /// `empty-cache`: `torch.cuda.empty_cache()` released memory.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["user", "range", "gc", "empty-cache"])))]
    pub kind: &'static str,
}

/// How often an annotation was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AnnotationCount {
    pub name: String,
    /// As an annotation's `kind`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["user", "range", "gc", "empty-cache"])))]
    pub kind: &'static str,
    /// Of collections: the steps that had any.
    pub count: u32,
}

/// Something that could end steps.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct StepSource {
    /// `optimizer`, `loop:1` (the outermost recorded loop), …
    pub name: String,
    /// The steps it would give.
    pub count: u32,
    /// Where its loops are, if it is made of loops.
    pub loop_locations: Vec<LoopLocation>,
}

/// What came after the last step.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AfterLast {
    pub allocations: u64,
    /// By how much live memory grew from then to the program's exit.
    pub bytes: u64,
}

/// Where a loop is, as `file:line`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(transparent)]
pub struct LoopLocation {
    pub at: String,
    /// The function there whose calls are the iterations, where threads or tasks begin with it.
    #[serde(skip)]
    pub calls_of: Option<String>,
    /// The program's function that a library's loop runs, and where that is, as `file:line`.
    #[serde(skip)]
    pub runs: Option<(String, String)>,
}

/// The totals at the end of one step.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Step {
    pub step: u32,
    /// Seconds since the recording began.
    pub at_s: f64,
    /// Live pinned host memory.
    pub host_bytes: u64,
    pub devices: Vec<StepDevice>,
}

/// One device at the end of a step; the fields mean what they mean of a device.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct StepDevice {
    pub index: u8,
    pub live_bytes: u64,
    pub block_bytes: u64,
    pub pool_used_bytes: u64,
    pub reserved_bytes: u64,
    pub driver_live_bytes: u64,
    pub unattributed_bytes: Option<u64>,
}
