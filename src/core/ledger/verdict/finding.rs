//! What a rule finds: one cause, its sites and its figures. Data only: which rule found it and how it is
//! worded is not known here.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::ledger::sites::Layer;

/// Which steps the figures of a finding are of: what grows in one phase of a program stands still in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedSteps {
    All,
    /// Those that train.
    Training,
    /// Iterations of loops in which nothing trains.
    Other,
}

impl CountedSteps {
    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            CountedSteps::All => "all",
            CountedSteps::Training => "training",
            CountedSteps::Other => "other",
        }
    }
}

/// The kind of a cause; the order is that of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Grows with the steps, and nothing frees it.
    Leak,
    /// Grows, and the run cannot show whether there is a bound.
    Growing,
    /// Garbage that only the cyclic garbage collector frees.
    PendingGc,
    /// Stayed when what it was set up with was freed.
    Residue,
    /// Grows in the loop that ran last, for the first time and to the end of the run: it may be freed behind it.
    LastLoop,
    /// Gathered after the last step, where none was seen.
    AfterLast,
    /// A few blocks keep much unused memory from going back to the driver.
    Fragmentation,
    /// Born in the step before, alive at the next one's peak.
    CarryOver,
    /// Accumulates, and is freed down to the same floor again and again: a sawtooth.
    Periodic,
    // Not leaks.
    /// Allocated in the first steps only.
    WarmUp,
    /// Came late, and stays.
    Plateau,
    /// Recycled, saturating, or bounded by its holder.
    Cache,
    /// Allocated anew and larger in each step, as nearly all that the steps make: they are given more.
    LargerInputs,
    /// A buffer that was replaced by a larger one whenever it was full: the run cannot show whether it will be again.
    Doubling,
    /// Grew through a loop, for what came behind it: joined to one block there, or released before the program went on.
    Gathered,
    /// Live bytes that left their floor and came back to it.
    Spike,
    /// Reserved memory that grew far more than live bytes.
    ReservedGrowth,
}

impl Kind {
    /// Returns whether it is memory that grew to the end of the run.
    pub const fn grows(self) -> bool {
        matches!(self, Kind::Leak | Kind::Growing | Kind::LastLoop)
    }

    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Leak => "leak",
            Kind::Growing => "growing",
            Kind::PendingGc => "pending-gc",
            Kind::Residue => "residue",
            Kind::LastLoop => "last-loop",
            Kind::AfterLast => "after-last",
            Kind::Fragmentation => "fragmentation",
            Kind::CarryOver => "carry-over",
            Kind::Periodic => "periodic",
            Kind::WarmUp => "warm-up",
            Kind::Plateau => "plateau",
            Kind::Cache => "cache",
            Kind::LargerInputs => "larger-inputs",
            Kind::Doubling => "doubling",
            Kind::Gathered => "gathered",
            Kind::Spike => "spike",
            Kind::ReservedGrowth => "reserved-growth",
        }
    }
}

/// How certain a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The site frees other blocks, and these outlived them all; or the figures leave no other reading.
    Confirmed,
    /// The site never freed anything: a bound that the run has not reached would look the same.
    Likely,
}

/// The share of one site in a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteShare {
    pub site: u32,
    pub device: u8,
    pub bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
}

/// One cause: what it is, and the figures that show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: Kind,
    pub confidence: Confidence,
    /// The device of its largest site; others may have some of it ([`Finding::devices`]).
    pub device: u8,
    pub layer: Layer,
    /// Largest first; empty for memory that belongs to no allocation that was seen.
    pub sites: Vec<SiteShare>,
    /// The steps that `growth_step_ratio`, `growth_bytes_per_step` and `span` are of.
    pub counted: CountedSteps,
    /// The median of what a step that adds anything adds; of carry-over, what one step carries.
    pub bytes_per_step: f64,
    /// 95 % confidence interval of `bytes_per_step`; `None` where there are no values of single steps.
    pub bytes_interval: Option<[f64; 2]>,
    pub blocks_per_step: f64,
    /// The share of steps that add, or carry.
    pub growth_step_ratio: f64,
    /// Length of a sawtooth, or the steps from one burst of growth to the next, where they are regular.
    pub period_steps: Option<f64>,
    /// The mean slope of what is never freed.
    pub growth_bytes_per_step: f64,
    /// What the latest steps add on average, where they add more and more.
    pub late_bytes_per_step: Option<f64>,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Distinct birth steps alive, and the first of them.
    pub cohorts: u32,
    pub oldest_step: u32,
    /// The first step that shows it; of growth, the birth of the oldest survivor.
    pub first_step: u32,
    /// Steps since the first in which a survivor could have been born: `cohorts` of so many are still held.
    pub span: u32,
    /// The last of these steps, where it is not the last of the run: what came later may yet be freed.
    pub until_step: Option<u32>,
    /// Blocks that its sites did free, and the longest life among them in steps.
    pub freed: u64,
    pub longest_life: u32,
    /// Of carry-over: how much lower the peak of the run would be without it.
    pub peak_reduction_bytes: u64,
    /// The step of the latest event that shows it: the unload, a release, a sudden free at the end of the
    /// run.
    pub evidence_step: u32,
    /// What the caching allocator took from the driver while this grew; `None` where that shows nothing.
    pub reserved_growth_bytes: Option<i64>,
    /// How much of that came in each step, where it comes steadily and is far more than grew: each CUDA graph, say,
    /// has a pool of its own.
    pub reserved_bytes_per_step: Option<f64>,
    /// True if it is reallocated again and again, each time larger: no block is old.
    pub renewed: bool,
    /// Of what is renewed: true if it became larger as regularly, and as often, as a list does that is a leak.
    pub rises_steadily: bool,
    /// True if it is a finding only where its holder is made anew of all that it had before.
    pub if_remade: bool,
    /// True if it is seen only when an arena grows, by ever larger pieces.
    pub doubling: bool,
    /// True if what it frees is older and older, as in a queue whose consumer is too slow.
    pub ever_later: bool,
    /// It was released after the last step, before the program exited.
    pub released_later: bool,
    /// What it can grow to, where its holder is bounded.
    pub bound_bytes: Option<u64>,
    /// How many entries its holder may have, if the program drops or refuses more: it compares the number with this.
    pub limit: Option<u64>,
    /// True if it may yet end by itself: with the first phase of its kind, which is not over, as what was freed late in
    /// the run, or as a queue that backs up irregularly.
    pub may_end: bool,
    /// Of garbage: true if the collector that would free it is switched off.
    pub collector_is_off: bool,
}

impl Finding {
    pub fn new(kind: Kind, confidence: Confidence, device: u8, layer: Layer) -> Finding {
        Finding {
            kind,
            confidence,
            device,
            layer,
            sites: Vec::new(),
            counted: CountedSteps::All,
            bytes_per_step: 0.0,
            bytes_interval: None,
            blocks_per_step: 0.0,
            growth_step_ratio: 0.0,
            period_steps: None,
            growth_bytes_per_step: 0.0,
            late_bytes_per_step: None,
            live_bytes: 0,
            live_blocks: 0,
            cohorts: 0,
            oldest_step: 0,
            first_step: 0,
            span: 0,
            until_step: None,
            freed: 0,
            longest_life: 0,
            peak_reduction_bytes: 0,
            evidence_step: 0,
            reserved_growth_bytes: None,
            reserved_bytes_per_step: None,
            renewed: false,
            rises_steadily: false,
            if_remade: false,
            doubling: false,
            ever_later: false,
            released_later: false,
            bound_bytes: None,
            limit: None,
            may_end: false,
            collector_is_off: false,
        }
    }

    /// Sorts the sites, the largest first, and adds them up. Of what grows that is the one that has grown most: another may
    /// add more at a time, and seldom.
    pub fn add_up(&mut self) {
        let grows = self.kind.grows();
        self.sites.sort_by(|a, b| {
            let by_step = b.bytes_per_step.total_cmp(&a.bytes_per_step);
            let by_live = b.live_bytes.cmp(&a.live_bytes);
            let by_size = if grows { by_live.then(by_step) } else { by_step.then(by_live) };
            by_size.then(a.site.cmp(&b.site))
        });
        self.live_bytes = self.sites.iter().fold(0, |sum, p| sum.wrapping_add(p.live_bytes));
        self.live_blocks = self.sites.iter().fold(0, |sum, p| sum.wrapping_add(p.live_blocks));
        self.device = self.sites.first().map_or(self.device, |p| p.device);
    }

    /// Returns the devices that have some of it, in order.
    pub fn devices(&self) -> BTreeSet<u8> {
        self.sites.iter().map(|p| p.device).chain([self.device]).collect()
    }

    /// Returns the share of its growth, or of its bytes where there is none, that is on a device: 0 to 1.
    pub fn part_on(&self, device: u8) -> f64 {
        let of = |bytes: &dyn Fn(&SiteShare) -> f64| {
            let all: f64 = self.sites.iter().map(bytes).sum();
            let its: f64 = self.sites.iter().filter(|p| p.device == device).map(bytes).sum();
            (all > 0.0).then_some(its / all)
        };
        let only = || if device == self.device { 1.0 } else { 0.0 };
        of(&|p| p.bytes_per_step).or_else(|| of(&|p| p.live_bytes as f64)).unwrap_or_else(only)
    }
}
