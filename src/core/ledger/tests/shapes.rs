//! Programs that leak, and what a verdict needs to be given at all.

use super::*;
use crate::format::event::StepSource;
use verdict::{Confidence, Kind, Verdict, judge};

/// A block each, at an address of its own.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) p: Program,
    next: u64,
    pub(super) held: Vec<u64>,
}

impl Shape {
    pub(super) fn run(step: impl FnMut(&mut Shape, u64), steps: u64) -> Verdict {
        judge(&Shape::ran(step, steps))
    }

    pub(super) fn ran(step: impl FnMut(&mut Shape, u64), steps: u64) -> Ledger {
        Shape::ran_program(step, steps).replay()
    }

    /// A program that does nothing but these steps.
    pub(super) fn steps_only(mut step: impl FnMut(&mut Shape, u64), steps: u64) -> Program {
        let mut s = Shape::default();
        for n in 1..=steps {
            step(&mut s, n);
            s.p.step();
        }
        s.p
    }

    fn ran_program(mut step: impl FnMut(&mut Shape, u64), steps: u64) -> Program {
        let mut s = Shape::default();
        for n in 1..=steps {
            // Every program has parameters, and a batch that lives into the next step.
            if n == 1 {
                (0..20).for_each(|_| s.keep(65_536, 1000));
            }
            let batch = s.block(4096, 1001);
            s.held.push(batch);
            if s.held.len() > 1 {
                let old = s.held.remove(0);
                s.p.free(old);
            }
            step(&mut s, n);
            s.p.step();
        }
        s.p
    }

    pub(super) fn block(&mut self, size: u64, stack: u32) -> u64 {
        self.next += 1;
        self.p.alloc(self.next << 12, size, stack);
        self.next << 12
    }

    /// A block that is never freed.
    pub(super) fn keep(&mut self, size: u64, stack: u32) {
        self.block(size, stack);
    }
}

#[test]
fn what_the_last_step_has_in_hand_was_not_kept() {
    for (steps, kept) in [(205, 20), (209, 20), (210, 21)] {
        let mut newest = None;
        let step = |s: &mut Shape, n: u64| {
            // Each goes when the next one is there, but for every tenth.
            let block = s.block(8192, 7);
            if let Some((step, old)) = newest.replace((n, block))
                && step % 10 != 0
            {
                s.p.free(old);
            }
        };
        let v = Shape::run(step, steps);
        let [f] = &v.findings[..] else { panic!("{v:?}") };
        assert_eq!((f.kind, f.live_blocks), (Kind::Leak, kept), "{steps} steps");
    }
}

/// Every step keeps a block but the last few: they are the end of the program, or the growth has come to its own.
#[test]
fn what_every_step_but_the_last_few_has_kept_is_a_leak() {
    let kinds = |steps: u64, quiet: u64| {
        let step = |s: &mut Shape, n: u64| {
            let block = s.block(8192, 7);
            if n > steps - quiet {
                s.p.free(block);
            }
        };
        Shape::run(step, steps).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(800, 8), [Kind::Leak]);
    assert_eq!(kinds(400, 18), [Kind::Leak]);
    assert_eq!(kinds(400, 32), [Kind::Growing]);
    assert_eq!(kinds(400, 60), []);
}

/// The last one came behind the last step, and went with all the others.
#[test]
fn what_is_freed_only_as_the_program_ends_was_not_freed() {
    let mut s = Shape::default();
    let mut kept = Vec::new();
    for n in 1..=200 {
        let batch = s.block(4096, 1001);
        if n % 10 == 1 && n > 1 {
            kept.push(s.block(2048, 7));
        }
        s.p.free(batch);
        s.p.step();
    }
    kept.push(s.block(2048, 7));
    kept.drain(..).for_each(|block| s.p.free(block));
    s.p.exit();
    let v = judge(&s.p.replay());
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.kind, f.confidence, f.freed, f.cohorts), (Kind::Leak, Confidence::Likely, 0, 19));
}

/// Of a sawtooth whose steps add two blocks or none a step adds one on average; where only the last step's block goes at once,
/// each adds as much as all others.
#[test]
fn what_a_step_of_a_sawtooth_adds_is_the_mean_where_steps_differ() {
    for (blocks, bytes) in [([0, 2], 8192.0), ([1, 1], 8192.0), ([3, 3], 24576.0)] {
        let mut list = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            for _ in 0..blocks[n as usize % 2] {
                list.push(s.block(8192, 7));
            }
            if n.is_multiple_of(8) {
                list.drain(..).for_each(|block| s.p.free(block));
            }
        };
        let v = Shape::run(step, 240);
        let [f] = &v.findings[..] else { panic!("{v:#?}") };
        assert_eq!(
            (f.kind, f.bytes_per_step, f.period_steps),
            (Kind::Periodic, bytes, Some(8.0)),
            "{blocks:?}"
        );
    }
}

/// What rises above the rest a few times is told; the top of a sawtooth is told as such, and what rises again and again is how
/// the program works.
#[test]
fn a_spike_is_seldom_and_no_sawtooth() {
    let spikes = |every: u64, gathers: bool| {
        let mut list = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            if !gathers || n % every == 1 {
                list.drain(..).for_each(|block| s.p.free(block));
            }
            if gathers || n.is_multiple_of(every) {
                list.push(s.block(1 << 20, 7));
            }
        };
        let v = Shape::run(step, 245);
        v.non_leaks.iter().filter(|f| f.kind == Kind::Spike).count()
    };
    assert_eq!(spikes(50, false), 1);
    assert_eq!(spikes(12, false), 0, "twenty times");
    assert_eq!(spikes(30, true), 0, "a sawtooth of eight teeth");
}

/// A list is cleared after each epoch, and its last entry is kept, in runs of whole epochs.
#[test]
fn what_stays_of_each_tooth_of_a_sawtooth_grows() {
    for (period, teeth) in [(25, 8), (20, 8), (40, 7), (25, 12), (10, 30)] {
        for keeps in [true, false] {
            let mut list = Vec::new();
            let step = |s: &mut Shape, n: u64| {
                // As the program clears the list behind the step.
                if n % period == 1 && n > 1 {
                    let last = list.pop();
                    list.drain(..).for_each(|block| s.p.free(block));
                    if let Some(last) = last.filter(|_| !keeps) {
                        s.p.free(last);
                    }
                }
                list.push(s.block(8192, 7));
            };
            let v = Shape::run(step, period * teeth);
            let found: Vec<Kind> = v.findings.iter().map(|f| f.kind).collect();
            let grows = found.iter().any(|kind| matches!(kind, Kind::Leak | Kind::Growing));
            assert_eq!(grows, keeps, "{period} × {teeth}: {v:#?}");
        }
    }
}

/// The last of the models that are kept is made by another call of the line.
#[test]
fn what_another_call_of_the_line_goes_on_with_has_not_stopped() {
    let step = |last: u32| {
        move |s: &mut Shape, n: u64| {
            if n % 20 == 1 && n <= 401 {
                s.keep(4096, if n == 401 { last } else { 7 });
            }
        }
    };
    let judged = |ledger: &Ledger| {
        let (location, way) = (u64::from, |stack| if stack == 8 { 7 } else { u64::from(stack) });
        let context = verdict::Context {
            location: &location,
            way: &way,
            lines: &u64::from,
            holders: &|_| Vec::new(),
            is_optimizer: &|_| false,
        };
        verdict::judge_by(ledger, context).findings.len()
    };
    assert_eq!(judged(&Shape::ran(step(8), 436)), 1);
    assert_eq!(judged(&Shape::ran(step(9), 436)), 0);
}

/// One line, called from two places: what the first call gathered went when it returned.
#[test]
fn what_a_call_gathers_is_no_leak_while_it_runs() {
    let mut gathered = Vec::new();
    let step = |s: &mut Shape, n: u64| {
        if n == 61 {
            gathered.drain(..).for_each(|block| s.p.free(block));
        }
        gathered.push(s.block(2048, if n <= 60 { 7 } else { 8 }));
    };
    let ledger = Shape::ran(step, 100);
    let one_way = |stack| if stack == 8 { 7 } else { u64::from(stack) };
    let judged = |way| {
        verdict::judge_by(
            &ledger,
            verdict::Context {
                location: &one_way,
                way,
                lines: &u64::from,
                holders: &|_| Vec::new(),
                is_optimizer: &|_| false,
            },
        )
    };
    assert_eq!(judged(&one_way).findings.len(), 0);
    assert_eq!(judged(&u64::from).findings.len(), 1);
}

#[test]
fn one_block_a_step_that_nothing_frees() {
    let v = Shape::run(|s, _| s.keep(512, 7), 200);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.bytes_per_step, f.blocks_per_step, f.growth_step_ratio), (512.0, 1.0, 1.0));
    assert_eq!((f.growth_bytes_per_step, f.live_bytes, f.live_blocks), (512.0, 512 * 200, 200));
    assert_eq!((f.cohorts, f.oldest_step, f.span, f.confidence), (200, 1, 200, Confidence::Likely));
}

#[test]
fn a_leak_among_much_churn_at_the_same_site() {
    let step = |s: &mut Shape, n| {
        let all: Vec<u64> = (0..50).map(|_| s.block(8192, 7)).collect();
        let kept = (n % 50) as usize;
        all.iter().enumerate().filter(|(i, _)| *i != kept).for_each(|(_, a)| s.p.free(*a));
    };
    let v = Shape::run(step, 40);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.bytes_per_step, f.confidence, f.blocks_per_step), (8192.0, Confidence::Confirmed, 1.0));
}

/// A model of twelve layers is dropped half way, and one block of its lines is not.
#[test]
fn what_is_left_after_unload_is_told_if_it_matters() {
    let left = |size: u64| {
        let mut model = Vec::new();
        let step = |s: &mut Shape, n| match n {
            2 => {
                model = (0..12).map(|_| s.block(1 << 20, 7)).collect();
                s.keep(size, 7);
            }
            40 => model.drain(..).for_each(|a| s.p.free(a)),
            _ => {}
        };
        let v = Shape::run(step, 80);
        v.findings.iter().map(|f| (f.kind, f.live_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(left(1 << 20), [(Kind::Residue, 1 << 20)]);
    assert_eq!(left(13 << 10), [(Kind::Residue, 13 << 10)]);
    assert_eq!(left(2304), [], "a constant that a framework keeps");
}

#[test]
fn a_leak_is_seen_from_early_on_and_the_shortest_run_is_the_documented_one() {
    let run = |steps| Shape::run(|s, _| s.keep(512, 7), steps).findings.len();
    assert_eq!(run(u64::from(verdict::MIN_STEPS)), 1);
    assert_eq!(run(u64::from(verdict::MIN_STEPS) - 1), 0);
}

#[test]
fn blocks_that_live_and_die_together_are_one_cause() {
    let mut late = Vec::new();
    let step = move |s: &mut Shape, n: u64| {
        for stack in 0..5 {
            s.block(512 << stack, 10 + stack);
        }
        // Another cause, in half of the steps.
        if n.is_multiple_of(2) {
            s.block(1 << 20, 30);
        }
        // One site frees others so late that its survivors must wait longer than the rest.
        s.block(256, 40);
        late.push(s.block(256, 40));
        if late.len() > 8 {
            s.p.free(late.remove(0));
        }
    };
    let v = Shape::run(step, 150);
    assert_eq!(v.findings.len(), 2, "{v:?}");
    assert_eq!(v.findings[0].bytes_per_step, f64::from(1 << 20));
    let together = &v.findings[1];
    assert_eq!(together.bytes_per_step, 512.0 * 31.0 + 256.0);
    assert_eq!(together.sites.len(), 6);
    assert!(together.sites.windows(2).all(|w| w[0].bytes_per_step >= w[1].bytes_per_step));
}

#[test]
fn the_warm_up_of_the_same_line_is_not_part_of_the_leak() {
    let step = |s: &mut Shape, n| {
        if n == 1 {
            s.block(17 << 20, 7);
        }
        s.block(512, 7);
    };
    let v = Shape::run(step, 100);
    assert_eq!((v.findings.len(), v.findings[0].growth_bytes_per_step), (1, 512.0));
    // Step 1's own 512 B stand in one cohort with the 17 MiB.
    assert_eq!(v.findings[0].live_bytes, 512 * 99);
}

#[test]
fn driver_objects_leak_too_but_segments_do_not() {
    let object = |s: &mut Shape, n: u64| {
        s.p.driver(EventKind::Alloc, MemoryClass::Linear, (1 << 44) + (n << 21), 1 << 20)
    };
    let v = Shape::run(object, 60);
    assert_eq!((v.findings.len(), v.findings[0].layer), (1, Layer::Driver));
    let segment = |s: &mut Shape, n: u64| {
        let start = (1 << 44) + (n << 21);
        s.p.driver(EventKind::Alloc, MemoryClass::Linear, start, 1 << 20);
        s.p.alloc(start, 512, 5);
        s.p.free(start);
    };
    assert_eq!(Shape::run(segment, 60).findings, []);
}

/// A step takes memory from an arena, which doubles when it is used up: 64 KiB each from 1 MiB on.
fn doubles(s: &mut Shape, n: u64) {
    if n % 16 == 1 && (n / 16 + 1).is_power_of_two() {
        s.p.driver(EventKind::Alloc, MemoryClass::Linear, (1 << 44) + (n << 30), (n / 16 + 1) << 20);
    }
}

#[test]
fn an_arena_that_doubles_as_fast_as_it_is_used_up_grows() {
    for steps in [240, 260, 300] {
        let v = Shape::run(doubles, steps);
        let [f] = &v.findings[..] else { panic!("{steps}: {:#?}", v.findings) };
        assert_eq!(
            (f.kind, f.layer, f.bytes_per_step, f.doubling),
            (Kind::Growing, Layer::Driver, 65_536.0, true)
        );
    }
    // By another way the first time: the same line.
    let mut by_two_ways = Shape::ran_program(doubles, 240);
    by_two_ways.events.iter_mut().find(|e| e.stack == 900).unwrap().stack = 901;
    let at_one_line = |stack: u32| u64::from(if stack == 901 { 900 } else { stack });
    let found = verdict::judge_by(
        &by_two_ways.replay(),
        verdict::Context {
            location: &at_one_line,
            way: &u64::from,
            lines: &u64::from,
            holders: &|_| Vec::new(),
            is_optimizer: &|_| false,
        },
    );
    let [f] = &found.findings[..] else { panic!("{:#?}", found.findings) };
    assert_eq!((f.doubling, f.sites.len(), f.bytes_per_step, f.live_bytes), (true, 2, 65_536.0, 15 << 20));
    // It stands once its last piece must have been used up, …
    let stands = |s: &mut Shape, n: u64| {
        if n < 200 {
            doubles(s, n)
        }
    };
    assert_eq!(Shape::run(stands, 300).findings, []);
    // … and what comes at once, or at any time, is set up.
    for times in [[7, 8, 9, 10], [31, 40, 90, 100]] {
        let set_up = |s: &mut Shape, n: u64| {
            if let Some(k) = times.iter().position(|&t| t == n) {
                s.p.driver(EventKind::Alloc, MemoryClass::Linear, (1 << 44) + (n << 30), 1 << (20 + k));
            }
        };
        assert_eq!(Shape::run(set_up, 160).findings, [], "{times:?}");
    }
}

#[test]
fn nothing_is_said_without_steps() {
    let mut p = Program::default();
    for i in 0..1000 {
        p.alloc((i + 1) << 12, 512, 1);
    }
    assert_eq!(judge(&p.replay()), Verdict::default());
}

/// A loop that keeps something, and another one behind it: what a training keeps has leaked, and what is computed only may
/// be there for the other loop.
#[test]
fn what_a_training_keeps_is_a_leak_though_another_loop_follows() {
    let kinds = |trains: bool| {
        let mut p = Program::default();
        for step in 0..100 {
            if step < 60 {
                p.alloc(0x1000 + step, 512, 7);
            }
            // What shows it, shows it from its second call on.
            if trains && (1..60).contains(&step) {
                p.push(Event::new(EventKind::Trained));
            }
            p.alloc(1, 64, 8);
            p.free(1);
            p.push(Event {
                address: step + 1,
                class: StepSource::Loop as u8,
                ..Event::new(EventKind::StepEnd)
            });
        }
        judge(&p.replay()).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!((kinds(true), kinds(false)), (vec![Kind::Leak], vec![]));
}

/// One call gives new weights and an output. The caller has the weights that an epoch began with until its end.
#[test]
fn what_one_call_gives_beside_what_is_kept_says_nothing_of_it() {
    for epochs in 3..8 {
        let (mut weights, mut first) = (None, None);
        let step = |s: &mut Shape, n: u64| {
            let of = |s: &mut Shape, entry_point: u16| {
                let block = s.block(4096, 7);
                s.p.events.last_mut().unwrap().entry_point = entry_point;
                block
            };
            let old = weights.replace(of(s, 1));
            let gone = if n % 30 == 1 { std::mem::replace(&mut first, old) } else { old };
            gone.into_iter().for_each(|gone| s.p.free(gone));
            of(s, 2);
        };
        let v = Shape::run(step, 30 * epochs);
        let [f] = &v.findings[..] else { panic!("{epochs}: {v:#?}") };
        assert_eq!((f.kind, f.bytes_per_step), (Kind::Leak, 4096.0), "{epochs}");
    }
}

/// Of so many steps most are not recorded each by itself any more.
const MANY_STEPS: u64 = 400_000;

#[test]
fn a_long_run_is_judged_as_a_short_one() {
    for steps in [100, MANY_STEPS] {
        let mut held = None;
        let renewed = |s: &mut Shape, n: u64| {
            let new = s.block(512 * n, 7);
            held.replace(new).into_iter().for_each(|old| s.p.free(old));
        };
        let v = Shape::run(renewed, steps);
        let [f] = &v.findings[..] else { panic!("{steps}: {v:#?}") };
        assert_eq!((f.kind, f.renewed, f.bytes_per_step), (Kind::Growing, true, 512.0), "{steps}");
        assert!((f.growth_bytes_per_step - 512.0).abs() < 8.0, "{steps}: {}", f.growth_bytes_per_step);

        let total = 1 << 40;
        let unseen = |s: &mut Shape, n: u64| {
            let free = total - (n << 20);
            s.p.push(Event { address: free, size: total, device: 0, ..Event::new(EventKind::MemInfo) });
        };
        let v = Shape::run(unseen, steps);
        let [f] = &v.findings[..] else { panic!("{steps}: {v:#?}") };
        assert_eq!((f.kind, f.layer, f.sites.len()), (Kind::Growing, Layer::Driver, 0), "{steps}");
        assert!((f.bytes_per_step / f64::from(1 << 20) - 1.0).abs() < 0.01, "{steps}: {}", f.bytes_per_step);
    }
}

/// Each kept block is larger than the one before, and its line has others in every step.
#[test]
fn what_grows_with_the_programs_sizes_is_counted_from_the_first_to_the_last() {
    let step = |s: &mut Shape, n: u64| {
        let other = s.block(512, 7);
        s.p.free(other);
        s.keep(8192 + 1024 * n, 7);
    };
    let v = Shape::run(step, 40);
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!((f.cohorts, f.live_blocks, f.live_bytes), (40, 40, (1..=40).map(|n| 8192 + 1024 * n).sum()));
}
