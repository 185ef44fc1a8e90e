//! Carry-over: what each step leaves alive and the next one frees, and what the peak would be without it.
//!
//! The blocks of step n that die inside n + 1 are known only as they die. So a step is cut into spans at
//! these frees: the most bytes live in each span are kept, and at the step's end each cause's share is taken
//! off the spans it was alive in.

use serde::{Deserialize, Serialize};

use super::devices::CarriedFree;
use super::totals::Books;

/// A cause that is alive at the peak with less than this share of it is not followed.
const MIN_SHARE: f64 = 0.01;
/// Causes followed, and sites kept of each.
const MAX_CAUSES: usize = 64;
const MAX_PARTS: usize = 16;
/// Values kept for a median; beyond that every second one, and so on.
const MAX_VALUES: usize = 512;

/// A sample of many values, evenly spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Values {
    kept: Vec<u64>,
    seen: u64,
    stride_log2: u8,
}

impl Values {
    fn push(&mut self, value: u64) {
        let due = self.seen & ((1 << self.stride_log2) - 1) == 0;
        self.seen = self.seen.wrapping_add(1);
        if !due {
            return;
        }
        if self.kept.len() >= MAX_VALUES {
            let mut odd = false;
            self.kept.retain(|_| {
                odd = !odd;
                odd
            });
            self.stride_log2 = (self.stride_log2 + 1).min(63);
        }
        self.kept.push(value);
    }

    /// Returns the values that are kept.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().copied()
    }
}

/// The part of one site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub site: u32,
    pub bytes: u64,
    pub blocks: u64,
}

/// Blocks that die together step after step while the next step is at its peak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    pub device: u8,
    /// The site with the most bytes: what it is known by.
    pub site: u32,
    /// Steps at whose peak it was alive, the first and the latest of them.
    pub steps: u32,
    pub first: u32,
    pub last: u32,
    /// Steps since the first that carried it over, whether or not it was alive at their peak, and the latest.
    pub carried: u32,
    last_carried: u32,
    /// What these carried.
    pub bytes: Values,
    pub blocks: Values,
    /// Sums over these.
    pub parts: Vec<Part>,
    /// The peak of the run without it.
    pub without: u64,
    /// The same, with the last of its blocks that die in a step: by this it is judged, since every loop has the one before of
    /// a batch or a result while it makes the next.
    pub with_last: u64,
}

/// What is carried over, by cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CarryOver {
    causes: Vec<Cause>,
}

/// Frees without a birth between them.
struct Burst {
    /// The last span in which all its blocks were alive, and its last free.
    span: usize,
    end: usize,
    parts: Vec<Part>,
    bytes: u64,
}

impl CarryOver {
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// Takes in what the step that ended freed of the one before. Where this boundary supersedes the last
    /// one, the step they lie in is not over: what died was not carried over into another.
    pub fn settle(&mut self, books: &mut Books, supersedes: bool) {
        let step = books.completed;
        for d in &mut books.devices {
            d.note_rest();
            let frees = if supersedes { &[][..] } else { &d.carried_frees[..] };
            let last = if supersedes { d.step_so_far() } else { d.last_span() };
            self.end_step(d.device, step, frees, last, d.peak_of_steps());
            d.carried_frees.clear();
        }
    }

    /// Takes in the step that ended on one device: what it freed, the peak of its last span, and the peak of
    /// all steps before.
    fn end_step(&mut self, device: u8, step: u32, frees: &[CarriedFree], last: u64, before: u64) {
        let peak = frees.iter().map(|f| f.peak).max().unwrap_or(0).max(last);
        let mut known: Vec<bool> = self.causes.iter().map(|c| c.device != device).collect();
        // Nothing that was carried over was alive at the peak unless something died after it.
        let at = frees.iter().rposition(|f| f.peak == peak).filter(|_| last < peak).filter(|&at| {
            let alive: u64 = frees[at..].iter().fold(0, |sum, f| sum.wrapping_add(f.bytes));
            alive as f64 >= MIN_SHARE * peak as f64
        });
        if at.is_some() || known.contains(&false) {
            let at = at.unwrap_or(frees.len());
            self.follow(device, step, (frees, at), (last, peak, before), &mut known);
        }
        for (cause, _) in self.causes.iter_mut().zip(known).filter(|(_, known)| !known) {
            cause.without = cause.without.max(peak);
            cause.with_last = cause.with_last.max(peak);
        }
    }

    fn follow(
        &mut self,
        device: u8,
        step: u32,
        (frees, at): (&[CarriedFree], usize),
        (last, peak, before): (u64, u64, u64),
        known: &mut Vec<bool>,
    ) {
        // The most bytes live at any time after each free, and in any span after it.
        let mut rest: Vec<u64> = frees.iter().map(|free| free.rest).collect();
        let mut after = vec![last; frees.len()];
        for i in (1..frees.len()).rev() {
            rest[i - 1] = rest[i - 1].max(rest[i]);
            after[i - 1] = after[i].max(frees[i].peak);
        }
        let (at_peak, others): (Vec<Burst>, Vec<Burst>) = bursts(frees)
            .into_iter()
            .filter(|burst| burst.bytes as f64 >= MIN_SHARE * peak as f64)
            .partition(|burst| burst.span >= at);
        for burst in at_peak {
            let gone = peak.saturating_sub(burst.bytes);
            let Some(site) = burst.site() else { continue };
            let found = self.causes.iter().position(|c| c.device == device && c.site == site);
            let cause = match found {
                Some(i) => i,
                None if self.causes.len() < MAX_CAUSES => {
                    self.causes.push(Cause {
                        device,
                        site,
                        steps: 0,
                        first: step,
                        last: step,
                        carried: 0,
                        last_carried: 0,
                        bytes: Values::default(),
                        blocks: Values::default(),
                        parts: Vec::new(),
                        without: before,
                        with_last: before,
                    });
                    known.push(false);
                    self.causes.len() - 1
                }
                None => continue,
            };
            known[cause] = true;
            let cause = &mut self.causes[cause];
            cause.without = cause.without.max(gone).max(rest[burst.end]);
            cause.with_last = cause.with_last.max(gone).max(after[burst.span]);
            if cause.steps == 0 || cause.last != step {
                cause.steps = cause.steps.saturating_add(1);
                cause.last = step;
            }
            cause.carry(step, &burst);
        }
        // How much a step carries does not depend on whether it raised that step's peak.
        for burst in others {
            let of = |c: &&mut Cause| c.device == device && Some(c.site) == burst.site();
            if let Some(cause) = self.causes.iter_mut().find(of) {
                cause.carry(step, &burst);
            }
        }
    }
}

impl Burst {
    /// Returns the site with the most bytes.
    fn site(&self) -> Option<u32> {
        self.parts.iter().max_by_key(|p| (p.bytes, p.site)).map(|p| p.site)
    }
}

impl Cause {
    fn carry(&mut self, step: u32, burst: &Burst) {
        if self.carried > 0 && self.last_carried == step {
            return;
        }
        self.carried = self.carried.saturating_add(1);
        self.last_carried = step;
        // What is tiny beside the rest died with it by chance: a scalar, a flag.
        let material = || burst.parts.iter().filter(|p| p.bytes as f64 >= MIN_SHARE * burst.bytes as f64);
        self.bytes.push(material().fold(0, |sum, p| sum.wrapping_add(p.bytes)));
        self.blocks.push(material().fold(0, |sum, p| sum.wrapping_add(p.blocks)));
        for part in material() {
            match self.parts.iter().position(|p| p.site == part.site) {
                Some(at) => {
                    let p = &mut self.parts[at];
                    p.bytes = p.bytes.wrapping_add(part.bytes);
                    p.blocks = p.blocks.wrapping_add(part.blocks);
                }
                None if self.parts.len() < MAX_PARTS => self.parts.push(part.clone()),
                None => {}
            }
        }
    }
}

fn bursts(frees: &[CarriedFree]) -> Vec<Burst> {
    let mut all: Vec<Burst> = Vec::new();
    for (i, f) in frees.iter().enumerate() {
        if f.apart || all.is_empty() {
            all.push(Burst { span: i, end: i, parts: Vec::new(), bytes: 0 });
        }
        let Some(burst) = all.last_mut() else { continue };
        burst.end = i;
        burst.bytes = burst.bytes.wrapping_add(f.bytes);
        match burst.parts.iter_mut().find(|p| p.site == f.site) {
            Some(p) => (p.bytes, p.blocks) = (p.bytes.wrapping_add(f.bytes), p.blocks.wrapping_add(1)),
            None => burst.parts.push(Part { site: f.site, bytes: f.bytes, blocks: 1 }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(site: u32, bytes: u64, peak: u64, apart: bool, rest: u64) -> CarriedFree {
        CarriedFree { site, bytes, peak, apart, rest }
    }

    #[test]
    fn the_peak_without_it() {
        let mut c = CarryOver::default();
        // 100 at the peak with 40 of the last step's in it; after their death at most 80.
        c.end_step(
            0,
            2,
            &[free(1, 5, 50, true, 100), free(7, 39, 100, true, 61), free(8, 1, 61, false, 80)],
            80,
            100,
        );
        let [cause] = c.causes() else { panic!("{c:?}") };
        assert_eq!((cause.site, cause.without, cause.steps), (7, 100, 1));
        let mut c = CarryOver::default();
        c.end_step(
            0,
            2,
            &[free(1, 5, 50, true, 100), free(7, 39, 100, true, 61), free(8, 1, 61, false, 80)],
            80,
            0,
        );
        assert_eq!(c.causes()[0].without, 80);
        c.end_step(0, 3, &[free(7, 30, 120, true, 60)], 60, 100);
        assert_eq!((c.causes()[0].without, c.causes()[0].steps), (90, 2));
        c.end_step(0, 4, &[], 110, 120);
        assert_eq!(c.causes()[0].without, 110);
        // What a step carried counts too where it was not at the peak, but that step is not one that it made higher.
        c.end_step(0, 5, &[free(7, 20, 50, true, 90)], 90, 120);
        let cause = &c.causes()[0];
        assert_eq!((cause.steps, cause.carried, cause.parts[0].bytes), (2, 3, 39 + 30 + 20));
        assert_eq!(cause.bytes.iter().collect::<Vec<_>>(), [40, 30, 20]);
        // The last one to die is taken off, too, though the last span began with it.
        let mut c = CarryOver::default();
        c.end_step(0, 2, &[free(7, 30, 130, true, 100)], 129, 0);
        assert_eq!(c.causes()[0].without, 100);
        // What died before the peak does not raise it.
        let mut c = CarryOver::default();
        c.end_step(0, 2, &[free(7, 39, 50, true, 80)], 80, 0);
        assert_eq!(c.causes(), []);
    }

    #[test]
    fn many_values_keep_their_median() {
        let mut v = Values::default();
        (0..10_000).for_each(|n| v.push(n % 100));
        let mut all: Vec<u64> = v.iter().collect();
        all.sort_unstable();
        assert!(all.len() <= MAX_VALUES && (30..70).contains(&all[all.len() / 2]), "{all:?}");
    }
}
