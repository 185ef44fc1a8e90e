//! Made-up allocation histories: programs that leak and programs that only look like it, drawn at random, and
//! how often the rules are right about them.
//!
//! `LEAKTRACE_DRAW=1000000,2000000,3000000 cargo test -p leaktrace-core histories::table -- --nocapture`
//! prints the table of three draws; its seeds are not the test's. Whoever changes a rule after a look at the
//! table moves on to seeds nobody has seen.

mod benign;
mod leaking;

use super::*;
use crate::ledger::verdict::{self, Kind as Found, judge};
use benign::BENIGN;
use leaking::LEAKING;

/// The site under suspicion.
const SITE: u32 = 7;

/// A history being drawn.
struct History {
    p: Program,
    r: Random,
    steps: u64,
    next: u64,
    queue: Vec<u64>,
    held: Vec<u64>,
    at: u64,
    /// Drawn once per history.
    period: u64,
    size: u64,
    share: f64,
    known: Vec<bool>,
    /// Of a cache: when a key was used last, and its block.
    keys: Vec<Option<(u64, u64)>>,
}

impl History {
    fn draw(seed: u64, steps: u64) -> History {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ steps);
        for _ in 0..4 {
            r.below(2);
        }
        let size = 512 << r.below(12);
        let share = r.below(1000) as f64 / 1000.0;
        let (queue, held, known) = (Vec::new(), Vec::new(), Vec::new());
        History {
            p: Program::default(),
            r,
            steps,
            next: 0,
            queue,
            held,
            at: 0,
            period: 0,
            size,
            share,
            known,
            keys: Vec::new(),
        }
    }

    fn block(&mut self, size: u64, stack: u32) -> u64 {
        self.next += 1;
        self.p.alloc(self.next << 12, size, stack);
        self.next << 12
    }

    fn suspect(&mut self) -> u64 {
        self.block(self.size, SITE)
    }

    /// Blocks that wait in a queue.
    fn receive(&mut self, count: u64) {
        for _ in 0..count {
            let a = self.suspect();
            self.held.push(a);
        }
    }

    /// Frees the one that waits longest.
    fn serve(&mut self) {
        if !self.held.is_empty() {
            let oldest = self.held.remove(0);
            self.p.free(oldest);
        }
    }

    /// Blocks that nothing frees.
    fn keep(&mut self, count: u32) {
        for _ in 0..count {
            self.suspect();
        }
    }

    fn free_all(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|a| self.p.free(a));
    }

    fn chance(&mut self, p: f64) -> bool {
        (self.r.below(1 << 20) as f64) < p * f64::from(1 << 20)
    }

    /// A number between two shares of the run.
    fn between(&mut self, low: f64, high: f64) -> u64 {
        let (low, high) = ((low * self.steps as f64) as u64, (high * self.steps as f64) as u64);
        low.max(1) + self.r.below((high - low).max(1))
    }

    /// What every program does: parameters, activations, a batch and a loss that live into the next step, and
    /// now and then a block that lives a few steps.
    fn ordinary(&mut self) {
        if self.at == 1 {
            for i in 0..10 {
                self.block(65_536, 1000 + i);
            }
        }
        let old = std::mem::take(&mut self.queue);
        let activations: Vec<u64> = (0..4).map(|i| self.block(8192 + (i << 9), 1100)).collect();
        self.queue = vec![self.block(4096, 1101), self.block(512, 1102)];
        old.into_iter().chain(activations).for_each(|a| self.p.free(a));
    }
}

type Step = fn(&mut History);

/// Whether the site was accused.
fn accused(seed: u64, steps: u64, step: Step) -> bool {
    let mut h = History::draw(seed, steps);
    for at in 1..=steps {
        h.at = at;
        h.ordinary();
        step(&mut h);
        h.p.step();
    }
    let accusing = [
        Found::Leak,
        Found::Growing,
        Found::PendingGc,
        Found::Residue,
        Found::Fragmentation,
        Found::CarryOver,
    ];
    let ledger = h.p.replay();
    let verdict = judge(&ledger);
    let of_site =
        |f: &verdict::Finding| f.sites.iter().any(|p| ledger.site(p.site).is_some_and(|s| s.stack == SITE));
    let mut accusations = verdict.findings.iter().filter(|f| accusing.contains(&f.kind));
    // Whatever is said of the rest of the program is false.
    assert!(accusations.clone().all(of_site), "seed {seed}: {verdict:#?}");
    accusations.next().is_some()
}

/// The share of accused ones, in percent: of each shape, and of all.
fn rates(shapes: &[(&'static str, Step)], seeds: std::ops::Range<u64>, steps: u64) -> (Vec<f64>, f64) {
    let rate = |shape: &(&str, Step)| {
        let hits = seeds.clone().filter(|&seed| accused(seed, steps, shape.1)).count();
        100.0 * hits as f64 / (seeds.end - seeds.start) as f64
    };
    let each: Vec<f64> = shapes.iter().map(rate).collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    (each, mean)
}

#[test]
fn hardly_any_is_accused_wrongly_and_hardly_any_leak_is_missed() {
    let (each, false_positives) = rates(&BENIGN, 7_000..7_040, 100);
    assert!(false_positives <= 1.0, "{false_positives} %: {each:?}");
    let (each, detections) = rates(&LEAKING, 7_000..7_040, 100);
    assert!(detections >= 97.0, "{detections} %: {each:?}");
}

/// Prints the table where `LEAKTRACE_DRAW` lists first seeds; it takes minutes.
#[test]
fn table() {
    let draws = std::env::var("LEAKTRACE_DRAW").unwrap_or_default();
    for first in draws.split(',').filter_map(|d| d.parse::<u64>().ok()) {
        println!("{:52}{:>8}{:>8}{:>8}", format!("accused, %: seeds from {first}"), 30, 100, 300);
        for (title, shapes) in [("benign", &BENIGN[..]), ("leaking", &LEAKING[..])] {
            let columns: Vec<_> = [30, 100, 300].map(|n| rates(shapes, first..first + 200, n)).into();
            for (i, (name, _)) in shapes.iter().enumerate() {
                let of: Vec<f64> = columns.iter().map(|c| c.0[i]).collect();
                println!("{name:52}{:8.1}{:8.1}{:8.1}", of[0], of[1], of[2]);
            }
            println!("{title:52}{:8.1}{:8.1}{:8.1}", columns[0].1, columns[1].1, columns[2].1);
        }
    }
}
