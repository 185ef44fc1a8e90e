//! Made-up allocation histories: programs that leak and programs that only look like it, drawn at random, and
//! how often the rules are right about them.
//!
//! `LEAKTRACE_DRAW=1000000,2000000,3000000 cargo test -p leaktrace-core histories::table -- --nocapture`
//! prints the table of three draws; its seeds are not the test's. Whoever changes a rule after a look at the
//! table moves on to seeds nobody has seen.

use super::*;
use crate::ledger::verdict::{self, Kind as Found, judge};

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

/// Those that leak nothing.
const BENIGN: [(&str, Step); 22] = [
    ("a queue that gets and gives at random, as much", |h| {
        let come = h.r.below(3);
        for _ in 0..come {
            let a = h.suspect();
            h.held.push(a);
        }
        if !h.held.is_empty() {
            let oldest = h.held.remove(0);
            h.p.free(oldest);
        }
    }),
    ("sessions that come and go at random", |h| {
        if h.chance(0.7) {
            let a = h.suspect();
            h.held.push(a);
        }
        if h.chance(0.7) && !h.held.is_empty() {
            let any = h.r.below(h.held.len() as u64) as usize;
            let a = h.held.swap_remove(any);
            h.p.free(a);
        }
    }),
    ("churn", |h| {
        let n = h.r.below(8);
        let all: Vec<u64> = (0..n).map(|_| h.suspect()).collect();
        all.into_iter().for_each(|a| h.p.free(a));
    }),
    ("warm-up and late states", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.8);
        }
        if h.at == 1 || h.at == h.period || h.at == h.period * 3 / 2 {
            h.keep(12);
        }
    }),
    ("first in, first out", |h| {
        if h.at == 1 {
            h.period = h.between(0.02, 0.35);
        }
        let a = h.suspect();
        h.held.push(a);
        if h.held.len() as u64 > h.period {
            let old = h.held.remove(0);
            h.p.free(old);
        }
    }),
    ("a cache that evicts at random", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.3);
        }
        for _ in 0..2 {
            let a = h.suspect();
            h.held.push(a);
        }
        while h.held.len() as u64 > h.period {
            let at = h.r.below(h.held.len() as u64) as usize;
            let old = h.held.swap_remove(at);
            h.p.free(old);
        }
    }),
    ("a cache of shapes that fills up", |h| {
        // As many shapes as come by in a third of the run, all as likely as each other.
        if h.at == 1 {
            h.period = h.between(0.05, 0.35);
            h.known = vec![false; h.period as usize];
        }
        let shape = h.r.below(h.period) as usize;
        if !std::mem::replace(&mut h.known[shape], true) {
            h.suspect();
        }
    }),
    ("a cache of shapes, some of them rare", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.25);
            h.known = vec![false; h.period as usize];
        }
        // The smaller of two draws: the last ones come rarely.
        let shape = h.r.below(h.period).min(h.r.below(h.period)) as usize;
        if !std::mem::replace(&mut h.known[shape], true) {
            h.suspect();
        }
        let gone = h.suspect();
        h.p.free(gone);
    }),
    ("a list that is cleared every epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.35);
        }
        let a = h.suspect();
        h.held.push(a);
        if h.at.is_multiple_of(h.period) {
            h.free_all();
        }
    }),
    ("spikes", |h| {
        if h.at == 1 {
            h.period = h.between(0.15, 0.35).max(4);
        }
        if h.at % h.period > h.period * 2 / 3 {
            let a = h.suspect();
            h.held.push(a);
        } else {
            h.free_all();
        }
    }),
    ("lengths that vary", |h| {
        let length = 1 + h.r.below(40);
        let a = h.block(512 * length, SITE);
        h.free_all();
        h.held.push(a);
    }),
    ("lengths that grow, a curriculum", |h| {
        let length = 8 + h.at * 20 / h.steps + h.r.below(3);
        let a = h.block(512 * length, SITE);
        h.free_all();
        h.held.push(a);
    }),
    ("lengths that grow, and vary by more", |h| {
        let length = 64 + h.at * 40 / h.steps + h.r.below(8);
        let a = h.block(512 * length, SITE);
        h.free_all();
        h.held.push(a);
    }),
    ("lives of any length", |h| {
        if h.at == 1 {
            h.share = 0.05 + h.share * 0.4;
        }
        let a = h.suspect();
        h.held.push(a);
        let mut i = 0;
        while i < h.held.len() {
            if h.chance(h.share) {
                let old = h.held.swap_remove(i);
                h.p.free(old);
            } else {
                i += 1;
            }
        }
    }),
    ("the best three of each epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.03, 0.1);
        }
        if h.at.is_multiple_of(h.period) {
            let a = h.suspect();
            h.held.push(a);
            if h.held.len() > 3 {
                let at = h.r.below(4) as usize;
                let old = h.held.remove(at);
                h.p.free(old);
            }
        }
    }),
    ("snapshots at ever longer intervals", |h| {
        if h.at.is_power_of_two() {
            h.suspect();
        }
        let gone = h.suspect();
        h.p.free(gone);
    }),
    ("a cache that evicts the least recently used", |h| {
        // More keys than room; low ones come by more often.
        if h.at == 1 {
            h.period = h.between(0.05, 0.2).max(2);
            h.keys = vec![None; h.period as usize * 3];
        }
        for _ in 0..2 {
            let key = h.r.below(h.keys.len() as u64).min(h.r.below(h.keys.len() as u64)) as usize;
            let old = h.keys[key].map(|(_, address)| address);
            let address = old.unwrap_or_else(|| h.suspect());
            h.keys[key] = Some((h.at, address));
            let full = h.keys.iter().flatten().count() as u64 > h.period;
            let last = (0..h.keys.len()).filter(|&i| h.keys[i].is_some()).min_by_key(|&i| h.keys[i]);
            if let Some((_, address)) = last.filter(|_| full).and_then(|i| h.keys[i].take()) {
                h.p.free(address);
            }
        }
    }),
    ("a cache of shapes, beside much churn", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.3);
            h.known = vec![false; h.period as usize];
        }
        let shape = h.r.below(h.period) as usize;
        if !std::mem::replace(&mut h.known[shape], true) {
            h.suspect();
        }
        let all: Vec<u64> = (0..10).map(|_| h.block(256 << 20, SITE)).collect();
        all.into_iter().for_each(|a| h.p.free(a));
    }),
    ("a buffer that is filled once, then written round", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.33);
        }
        if h.at <= h.period {
            h.keep(2);
        }
    }),
    ("cleared when it holds too much", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.4) * 3;
        }
        let n = h.r.below(6);
        for _ in 0..n {
            let a = h.suspect();
            h.held.push(a);
        }
        if h.held.len() as u64 > h.period {
            h.free_all();
        }
    }),
    ("a batch that grows from epoch to epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.15).max(3);
        }
        let new = h.block(512 * (1 + h.at / h.period), SITE);
        h.free_all();
        h.held.push(new);
    }),
    ("training and validation, each with its own batch", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.3).max(4);
        }
        let validates = h.at % h.period >= h.period * 2 / 3;
        let a = h.block(h.size << u64::from(validates), SITE);
        h.free_all();
        h.held.push(a);
    }),
];

/// Those that leak.
const LEAKING: [(&str, Step); 24] = [
    ("every step", |h| h.keep(1)),
    ("one in fifty of what the line makes", |h| {
        let all: Vec<u64> = (0..50).map(|_| h.suspect()).collect();
        let kept = h.r.below(50) as usize;
        all.into_iter().enumerate().filter(|(i, _)| *i != kept).for_each(|(_, a)| h.p.free(a));
    }),
    ("now and then", |h| {
        if h.at == 1 {
            h.share = 0.15 + h.share * 0.5;
        }
        let a = h.suspect();
        if !h.chance(h.share) {
            h.p.free(a);
        }
    }),
    ("now and then, and nothing is freed", |h| {
        if h.at == 1 {
            h.share = 0.15 + h.share * 0.5;
        }
        if h.chance(h.share) {
            h.suspect();
        }
    }),
    ("once per epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.03, 0.1);
        }
        if h.at.is_multiple_of(h.period) {
            h.keep(3);
        }
    }),
    ("in every validation", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.25).max(4);
        }
        let a = h.suspect();
        if h.at % h.period < h.period / 2 {
            h.p.free(a);
        }
    }),
    ("freed at the very end", |h| {
        let a = h.suspect();
        h.held.push(a);
        if h.at == h.steps {
            h.free_all();
        }
    }),
    ("ever more, all of it renewed", |h| {
        let n = h.held.len() + 1;
        let new: Vec<u64> = (0..n).map(|_| h.suspect()).collect();
        h.free_all();
        h.held = new;
    }),
    ("from some step on", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.4);
        }
        let a = h.suspect();
        if h.at < h.period {
            h.p.free(a);
        }
    }),
    ("what a sawtooth leaves", |h| {
        if h.at == 1 {
            h.period = h.between(0.03, 0.1).max(3);
        }
        for _ in 0..2 {
            let a = h.suspect();
            h.held.push(a);
        }
        if h.at.is_multiple_of(h.period) {
            h.held.pop();
            h.free_all();
        }
    }),
    ("beside a freak that lives long", |h| {
        let a = h.suspect();
        if h.at == 2 {
            h.held.push(a);
        }
        if h.at == h.steps * 3 / 4 {
            h.free_all();
        }
    }),
    ("once per long epoch", |h| {
        // Six to nine of them.
        if h.at == 1 {
            h.period = h.between(0.11, 0.16).max(3);
        }
        if h.at.is_multiple_of(h.period) {
            h.keep(2);
        }
    }),
    ("512 B a step beside gigabytes of churn", |h| {
        let all: Vec<u64> = (0..20).map(|_| h.block(256 << 20, SITE)).collect();
        h.block(512, SITE);
        all.into_iter().for_each(|a| h.p.free(a));
    }),
    ("512 B a step beside churn of as small", |h| {
        let n = 5 + h.r.below(20);
        let all: Vec<u64> = (0..n).map(|_| h.block(512, SITE)).collect();
        h.block(512, SITE);
        let old = std::mem::replace(&mut h.held, all);
        old.into_iter().for_each(|a| h.p.free(a));
    }),
    ("some at every failure", |h| {
        if h.at == 1 {
            h.share = 0.1 + h.share * 0.15;
        }
        let a = h.suspect();
        h.p.free(a);
        if h.chance(h.share) {
            h.keep(4);
        }
    }),
    ("some at every failure, and nothing is freed", |h| {
        if h.at == 1 {
            h.share = 0.1 + h.share * 0.15;
        }
        if h.chance(h.share) {
            h.keep(4);
        }
    }),
    ("per conversation", |h| {
        // A few steps of it, then a pause; what it gathered is never asked for again.
        if h.at == 1 {
            h.period = h.between(0.06, 0.15).max(5);
        }
        if h.at % h.period < h.period * 3 / 5 {
            h.keep(1);
        }
    }),
    ("ever more, renewed every other step, beside churn", |h| {
        let n = h.r.below(4);
        let gone: Vec<u64> = (0..n).map(|_| h.block(h.size * 4, SITE)).collect();
        gone.into_iter().for_each(|a| h.p.free(a));
        if h.at.is_multiple_of(2) {
            let n = h.held.len() + 2;
            let new: Vec<u64> = (0..n).map(|_| h.suspect()).collect();
            h.free_all();
            h.held = new;
        }
    }),
    ("one block, ever larger, renewed", |h| {
        let new = h.block(512 * h.at, SITE);
        h.free_all();
        h.held.push(new);
    }),
    ("one block, ever larger, in as much as was found for it", |h| {
        if h.at == 1 {
            h.period = 8 + h.r.below(16);
        }
        // Every other one has what is left of a segment, for a while.
        let is_left = h.at.is_multiple_of(2) && (h.at / h.period).is_multiple_of(2);
        let units = if is_left { h.at.next_multiple_of(h.period) } else { h.at };
        let new = h.block((64 << 10) * units, SITE);
        h.free_all();
        h.held.push(new);
    }),
    ("a queue whose consumer is too slow", |h| {
        if h.at == 1 {
            h.period = h.between(0.0, 0.03).max(2);
        }
        let a = h.suspect();
        h.held.push(a);
        if h.at.is_multiple_of(h.period) {
            let oldest = h.held.remove(0);
            h.p.free(oldest);
        }
    }),
    ("a queue whose consumer takes many at a time, but too few", |h| {
        if h.at == 1 {
            h.period = h.between(0.02, 0.04).max(4);
        }
        let a = h.suspect();
        h.held.push(a);
        if h.at.is_multiple_of(h.period) {
            for a in h.held.drain(..h.period as usize / 2) {
                h.p.free(a);
            }
        }
    }),
    ("a queue that gets and gives at random, but gives less", |h| {
        let come = h.r.below(3);
        for _ in 0..come {
            let a = h.suspect();
            h.held.push(a);
        }
        if h.chance(0.4) && !h.held.is_empty() {
            let oldest = h.held.remove(0);
            h.p.free(oldest);
        }
    }),
    ("of any size, in most steps", |h| {
        if h.at == 1 {
            h.share = 0.5 + h.share * 0.5;
        }
        if h.chance(h.share) {
            let size = 512 * (1 + h.r.below(200));
            h.block(size, SITE);
        }
    }),
];

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
