//! Programs that allocate anew in each step what they hold, and more each time or as much.

use super::shapes::Shape;
use super::*;
use crate::format::entry::Retention;
use crate::frameworks::{JAX, TENSORFLOW};
use verdict::{Context, Kind, Verdict, judge, judge_by};

/// A cache that each step copies into a larger one: the old one is alive at the peak of the step that frees it.
#[test]
fn what_is_reallocated_each_step_is_one_finding() {
    let mut p = Program::default();
    for step in 0..80u64 {
        p.alloc(0x1000 + step, 4096 * (step + 1), 7);
        p.alloc(1, 1 << 16, 8);
        p.free(1);
        if step > 0 {
            p.free(0x1000 + step - 1);
        }
        p.boundary(0);
    }
    assert_eq!(judge(&p.replay()).findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::Growing]);
}

/// A sweep over widths: each model is larger than the one before, which is gone by then.
#[test]
fn a_thing_that_is_larger_than_the_one_before_is_not_made_of_it() {
    for (is_gone, kinds) in [(true, vec![]), (false, vec![Kind::Growing])] {
        let mut model = None;
        let step = |s: &mut Shape, n: u64| {
            if n % 8 == 1 {
                let old = model.take();
                old.into_iter().filter(|_| is_gone).for_each(|old| s.p.free(old));
                model = Some(s.block((n / 8 + 1) << 14, 7));
                old.into_iter().filter(|_| !is_gone).for_each(|old| s.p.free(old));
            }
        };
        let v = Shape::run(step, 96);
        assert_eq!(v.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), kinds, "{is_gone}: {v:#?}");
    }
}

/// PyTorch rounds blocks of more than 10 MiB up to 2 MiB: what grows by less becomes larger in some steps only. Lengths that
/// grow from epoch to epoch do so, too, but seldom.
#[test]
fn what_is_rounded_up_grows_in_some_steps() {
    let kinds = |kib_per_step: u64| {
        let mut held = None;
        let step = |s: &mut Shape, n: u64| {
            let bytes = ((12 << 20) + ((n * kib_per_step) << 10)).next_multiple_of(2 << 20);
            let new = s.block(bytes, 7);
            held.replace(new).into_iter().for_each(|old| s.p.free(old));
        };
        Shape::run(step, 120).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(1024), [Kind::Growing]);
    assert_eq!(kinds(512), [Kind::Growing]);
    assert_eq!(kinds(100), []);
}

/// PyTorch's allocator leaves a block of more than 1 MiB what it found it in, which may be up to 1 MiB more. So what grows evenly
/// stands still, jumps and becomes smaller in between, and some objects' at one line may do so in turns.
#[test]
fn what_blocks_have_to_spare_hides_no_growth() {
    let found = |objects: u64, bytes: fn(u64) -> u64, steps: u64| {
        let mut random = Random(11);
        let mut held: Vec<u64> = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            for at in 0..objects {
                let needed = bytes(n);
                let spare = if needed > 1 << 20 { random.below(1 << 20) } else { 0 };
                let new = s.block((needed + spare).next_multiple_of(512), 7);
                if held.len() < objects as usize {
                    held.push(new);
                } else {
                    s.p.free(std::mem::replace(&mut held[at as usize], new));
                }
            }
        };
        let v = Shape::run(step, steps);
        v.findings.iter().map(|f| (f.kind, f.bytes_per_step.round() as u64)).collect::<Vec<_>>()
    };
    for (objects, steps) in [(1, 90), (2, 80), (4, 90), (12, 100), (3, 200)] {
        let wanted = [(Kind::Growing, objects * 16_384)];
        assert_eq!(found(objects, |n| n * 16_384, steps), wanted, "{objects} objects, {steps} steps");
    }
    // Fewer steps than show what does not rise in all of them, but it does in all that leave nothing to spare.
    assert_eq!(found(2, |n| n * 49_152, 30), [(Kind::Growing, 98_304)]);
    for objects in [1, 4, 12] {
        assert_eq!(found(objects, |_| 1_500_000, 120), [], "all of it is spare");
        assert_eq!(found(objects, |n| n.min(40) * 30_000, 120), [], "full since step 40");
        assert_eq!(found(objects, |n| 600_000 + n / 25 * 300_000, 120), [], "longer from epoch to epoch");
    }
}

/// TensorFlow's allocator leaves a block what it found it in, which may be up to twice as much: keys and values that are joined to
/// those before, each in what the other one left.
#[test]
fn nor_does_it_where_half_of_a_block_may_be_spare() {
    let (number, _) = TENSORFLOW.allocator.unwrap();
    let found = |bytes: fn(u64) -> u64| {
        let mut random = Random(5);
        let mut held: [Option<u64>; 2] = [None; 2];
        let step = |s: &mut Shape, n: u64| {
            for (stack, held) in (7..).zip(&mut held) {
                let needed = bytes(n);
                let new = s.block((needed + random.below(needed)).next_multiple_of(256), stack);
                s.p.events.last_mut().unwrap().entry_point = number;
                held.replace(new).into_iter().for_each(|old| s.p.free(old));
            }
        };
        let v = Shape::run(step, 200);
        v.findings.iter().map(|f| (f.kind, (f.bytes_per_step / 65_536.0).round())).collect::<Vec<_>>()
    };
    // One and a half times as much on average.
    assert_eq!(found(|n| n * 65_536), [(Kind::Growing, 2.0), (Kind::Growing, 2.0)]);
    assert_eq!(found(|_| 6_553_600), [], "all of it is spare");
    assert_eq!(found(|n| n.min(60) * 65_536), [], "full since step 60");
}

/// Each step adds to one buffer. Fewer steps than twenty show too little.
#[test]
fn a_buffer_that_is_larger_after_each_step_grows_in_a_short_run() {
    let kinds = |steps: u64, bytes: fn(u64) -> u64| {
        let mut held = None;
        let step = |s: &mut Shape, n: u64| {
            let new = s.block(bytes(n), 7);
            held.replace(new).into_iter().for_each(|old| s.p.free(old));
        };
        Shape::run(step, steps).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(20, |n| n << 14), [Kind::Growing]);
    assert_eq!(kinds(30, |n| n << 22), [Kind::Growing]);
    assert_eq!(kinds(18, |n| n << 14), []);
    assert_eq!(kinds(30, |n| (n - n / 9) << 14), [], "not after each");
    assert_eq!(kinds(30, |n| n.min(25) << 14), [], "it is full");
}

/// Small blocks are rounded up to 512 bytes: so are the keys and values of a cache, one token in each step.
#[test]
fn so_does_a_small_one() {
    let kinds = |bytes: &dyn Fn(u64) -> u64| {
        let mut held: Vec<u64> = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            for at in 0..2 {
                let new = s.block(bytes(n).next_multiple_of(512), 7);
                if held.len() < 2 {
                    held.push(new);
                } else {
                    s.p.free(std::mem::replace(&mut held[at], new));
                }
            }
        };
        Shape::run(step, 400).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    for each in [64, 160, 240] {
        assert_eq!(kinds(&|n| n * each), [Kind::Growing], "{each}");
    }
    // A number in each step, and batches that become longer from epoch to epoch.
    assert_eq!(kinds(&|n| n * 4), []);
    assert_eq!(kinds(&|n| 4096 + n / 20 * 512), []);
    assert_eq!(kinds(&|n| 4096 + n / 5 * 2048), []);
}

/// Hooks that are never removed, each with its layer's latest output: the first frees its old one before the newest comes.
#[test]
fn ever_more_blocks_grow_though_all_of_them_are_renewed() {
    let mut latest: Vec<u64> = Vec::new();
    let step = |s: &mut Shape, _| {
        for hook in &mut latest {
            s.p.free(*hook);
            *hook = s.block(8192, 7);
        }
        latest.push(s.block(8192, 7));
    };
    let v = Shape::run(step, 60);
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!((f.kind, f.renewed, f.blocks_per_step), (Kind::Growing, true, 1.0));
}

/// A compiled function returns all of a history with each call, and `more` arrays; the old ones are freed behind that. Each
/// output bears a number of its own.
#[test]
fn outputs_that_become_more_with_each_call_grow() {
    let run = |more: u64, most: usize, first: u64| {
        let mut history: Vec<u64> = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            let count = (first + more * n).min(most as u64);
            let output = |s: &mut Shape, at: u64| {
                let address = s.block(8192, 7);
                s.p.events.last_mut().unwrap().entry_point = JAX.output(at as usize).unwrap();
                address
            };
            let new = (0..count).map(|at| output(s, at)).collect();
            std::mem::replace(&mut history, new).into_iter().for_each(|old| s.p.free(old));
        };
        Shape::run(step, 60)
    };
    for (more, first) in [(1, 0), (2, 0), (1, 40)] {
        let v = run(more, usize::MAX, first);
        let [f] = &v.findings[..] else { panic!("{more}, {first}: {v:#?}") };
        let wanted = (Kind::Growing, true, more as f64, (more * 8192) as f64);
        assert_eq!((f.kind, f.renewed, f.blocks_per_step, f.bytes_per_step), wanted, "{more}, {first}");
    }
    assert_eq!(run(1, 30, 0).findings.len(), 0, "it is full");
    assert_eq!(run(0, usize::MAX, 40).findings.len(), 0);
}

/// The call stack of an optimizer.
const OPTIMIZER: u32 = 50;

fn kinds(v: &Verdict) -> (Vec<Kind>, bool) {
    let larger = v.non_leaks.iter().any(|f| f.kind == Kind::LargerInputs);
    (v.findings.iter().map(|f| f.kind).collect(), larger)
}

/// A step that makes something larger of what it had, which is `given` to it or made of the one before and `added` to; from
/// that, other things of `sizes`; and a few that are as large as always.
fn lengthening(sizes: &[u64], added: bool, constant: u32) -> Verdict {
    let mut held = None;
    let step = |s: &mut Shape, n: u64| {
        if added {
            let new = s.block(2048, 6);
            s.p.free(new);
        }
        let new = s.block(2048 * n, 7);
        held.replace(new).into_iter().for_each(|old| s.p.free(old));
        for (stack, size) in (10..).zip(sizes) {
            let made = s.block(size * n, stack);
            s.p.free(made);
        }
        for stack in 30..30 + constant {
            let made = s.block(65_536, stack);
            s.p.free(made);
        }
        for stack in [OPTIMIZER, OPTIMIZER + 1, OPTIMIZER + 2] {
            let made = s.block(65_536, stack);
            s.p.free(made);
        }
    };
    judged(step)
}

fn judged(step: impl FnMut(&mut Shape, u64)) -> Verdict {
    let ledger = Shape::steps_only(step, 100).replay();
    let context = Context {
        location: &u64::from,
        way: &u64::from,
        lines: &u64::from,
        holders: &|_| Vec::new(),
        is_optimizer: &|stack| (OPTIMIZER..OPTIMIZER + 3).contains(&stack),
    };
    judge_by(&ledger, context)
}

#[test]
fn longer_inputs_make_all_that_follows_larger() {
    let (larger, leak) = ((vec![], true), (vec![Kind::Growing], false));
    assert_eq!(kinds(&lengthening(&[1024, 4096, 512], false, 3)), larger);
    // What is made of the one before is larger by what is added to it, and that is there first.
    assert_eq!(kinds(&lengthening(&[1024, 4096, 512], true, 1)), leak);
    // Most of what the step makes is as large as before.
    assert_eq!(kinds(&lengthening(&[1024, 4096, 512], false, 4)), leak);
    assert_eq!(kinds(&lengthening(&[], false, 0)), leak);
}

/// A small model, of which half of what a step makes is as large as always, keeps its last output.
#[test]
fn what_grows_by_the_share_that_the_input_grows_by_has_its_size_from_that() {
    let run = |size: fn(u64) -> u64| {
        let mut held = None;
        let step = |s: &mut Shape, n: u64| {
            let given = s.block(512 * n, 6);
            let new = s.block(size(n), 7);
            held.replace(new).into_iter().for_each(|old| s.p.free(old));
            let made = [(10, 1024 * n), (11, 2048 * n), (30, 65_536), (31, 65_536), (32, 65_536)];
            let made = made.map(|(stack, size)| s.block(size, stack));
            made.into_iter().for_each(|block| s.p.free(block));
            s.p.free(given);
        };
        kinds(&judged(step))
    };
    assert_eq!(run(|n| 1024 * n), (vec![], true));
    assert_eq!(run(|n| 512 * n * n), (vec![Kind::Growing], false));
}

/// Judges a run where holders of so many blocks each have what it keeps.
fn held_by(ledger: &Ledger, retentions: &[Retention], blocks: u64) -> Verdict {
    let holder = |(holder, &retention): (u64, &Retention)| verdict::SiteHolder {
        holder,
        object: holder,
        retention,
        is_state: false,
        is_of_call: false,
        blocks,
        bytes: 1 << 18,
    };
    let context = Context {
        location: &u64::from,
        way: &u64::from,
        lines: &u64::from,
        holders: &|_| (1..).zip(retentions).map(holder).collect(),
        is_optimizer: &|_| false,
    };
    judge_by(ledger, context)
}

/// A variable that gets a larger value in each step, which is not made of the one before.
#[test]
fn what_variables_hold_that_are_replaced_is_larger_inputs() {
    let mut held = None;
    let step = |s: &mut Shape, n: u64| {
        let new = s.block(2048 * n, 7);
        held.replace(new).into_iter().for_each(|old| s.p.free(old));
    };
    let ledger = Shape::steps_only(step, 100).replay();
    let of = |retentions: &[Retention]| kinds(&held_by(&ledger, retentions, 1));
    assert_eq!(of(&[Retention::Computed]), (vec![], true));
    assert_eq!(of(&[Retention::Replaced]), (vec![], true));
    assert_eq!(of(&[Retention::Replaced, Retention::Unknown]), (vec![], true));
    assert_eq!(of(&[Retention::Replaced, Retention::Unbounded]), (vec![Kind::Leak], false));
    assert_eq!(of(&[Retention::Unknown]), (vec![Kind::Growing], false));
    assert_eq!(of(&[]), (vec![Kind::Growing], false));
}

/// A list that each step makes anew, with one more block in every n-th: it is a leak if it is made of itself, and else may be of a
/// work that takes more rounds.
#[test]
fn what_is_remade_with_more_parts_grows_if_it_is_made_of_itself() {
    for (every, steps) in [(3, 200), (3, 300), (5, 400), (7, 500), (10, 600), (10, 800)] {
        let mut held: Vec<u64> = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            let new = (0..=n / every).map(|_| {
                let part = s.block(4096, 6);
                let made = s.block(4096, 7);
                s.p.free(part);
                made
            });
            let new = new.collect();
            std::mem::replace(&mut held, new).into_iter().for_each(|old| s.p.free(old));
        };
        let ledger = Shape::steps_only(step, steps).replay();
        let of = |retention| held_by(&ledger, &[retention], steps / every);
        let of_itself = of(Retention::Remade);
        let [f] = &of_itself.findings[..] else { panic!("{every} {steps}: {of_itself:#?}") };
        assert_eq!((f.kind, f.bytes_per_step), (Kind::Leak, 4096.0), "{every}");
        let other = of(Retention::Unbounded);
        assert_eq!((other.findings.len(), other.undecided.len()), (0, 1), "{every} {steps}");
    }
}

/// PyTorch's allocator leaves a block of more than 1 MiB what it was found in, if that is up to 1 MiB more.
#[test]
fn longer_inputs_are_seen_in_blocks_that_are_rounded_up() {
    let run = |added: bool| {
        let mut held = None;
        let step = |s: &mut Shape, n: u64| {
            let rounded =
                |size: u64, of: u64| if size > 1 << 20 { size + (n * of) % 97 * 2_000 } else { size };
            if added {
                let new = s.block(16_384, 6);
                s.p.free(new);
            }
            let new = s.block(rounded(16_384 * n, 40_503), 7);
            held.replace(new).into_iter().for_each(|old| s.p.free(old));
            let made = [(10, 40_009), (11, 40_013), (12, 40_031)];
            let made = made.map(|(stack, of)| s.block(rounded(16_384 * n, of), stack));
            made.into_iter().for_each(|block| s.p.free(block));
        };
        kinds(&judged(step))
    };
    assert_eq!(run(false), (vec![], true));
    assert_eq!(run(true), (vec![Kind::Growing], false));
}

/// Lists that are cleared every twenty steps, the last time in the last step, and what is kept of every tenth.
#[test]
fn what_is_freed_at_the_end_as_ever_was_not_held_until_then() {
    let mut lists = Vec::new();
    let step = |s: &mut Shape, n: u64| {
        let block = s.block(8192, 7);
        if n % 10 != 1 {
            lists.push(block);
        }
        if n.is_multiple_of(20) {
            lists.drain(..).for_each(|block| s.p.free(block));
        }
    };
    let v = Shape::run(step, 240);
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!((f.kind, f.live_blocks, f.evidence_step), (Kind::Leak, 24, 0));
}

/// One block that becomes larger at times, by so much.
fn enlarged_at_times(larger: impl Fn(u64) -> u64, steps: u64) -> Verdict {
    let mut held: Option<(u64, u64)> = None;
    let step = |s: &mut Shape, n: u64| {
        let size = larger(n);
        if held.is_none_or(|(_, before)| size > before) {
            let new = s.block(size, 7);
            held.replace((new, size)).into_iter().for_each(|(old, _)| s.p.free(old));
        }
    };
    Shape::run(step, steps)
}

/// The kinds of what is found then.
fn replaced_at_times(larger: impl Fn(u64) -> u64, steps: u64) -> Vec<Kind> {
    enlarged_at_times(larger, steps).findings.iter().map(|f| f.kind).collect()
}

/// A buffer that doubles when it is full may have a bound or not, until it should have been full again.
#[test]
fn what_doubles_whenever_it_is_full_is_told_and_not_judged() {
    let told = |larger: &dyn Fn(u64) -> u64, steps| {
        let v = enlarged_at_times(larger, steps);
        assert_eq!(v.findings, [], "{steps}");
        let of = |f: &&verdict::Finding| f.kind == Kind::Doubling;
        v.non_leaks.iter().find(of).map(|f| (f.live_bytes, f.evidence_step, f.growth_bytes_per_step))
    };
    let doubles = |n: u64| n.next_power_of_two() << 12;
    for (steps, size, since) in [(240, 256, 129), (300, 512, 257), (500, 512, 257)] {
        assert_eq!(told(&doubles, steps), Some((size << 12, since, 4096.0)), "{steps}");
    }
    // The last one should have been full long ago.
    assert_eq!(told(&|n| doubles(n.min(64)), 240), None);
    // It doubles at intervals, whatever is put into it.
    assert_eq!(told(&|n| 4096 << (n / 50), 240), None);
}

/// A queue that is filled in bursts, and emptied by less or by as much.
#[test]
fn what_comes_in_bursts_and_is_removed_in_part_grows() {
    let kinds = |added: u64, removed: u64| {
        let mut queue = std::collections::VecDeque::new();
        let step = |s: &mut Shape, n: u64| {
            let (at, times) = (n % 20, removed.min(queue.len() as u64));
            if at < added {
                queue.push_back(s.block(4096, 7));
            } else if at == 19 {
                queue.drain(..times as usize).for_each(|block| s.p.free(block));
            }
        };
        let v = Shape::run(step, 240);
        v.findings.iter().map(|f| (f.kind, f.growth_bytes_per_step, f.ever_later)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(5, 1), [(Kind::Growing, 4.0 * 4096.0 / 20.0, true)]);
    assert_eq!(kinds(5, 3), [(Kind::Growing, 2.0 * 4096.0 / 20.0, true)]);
    assert_eq!(kinds(5, 5), []);
}

#[test]
fn what_is_replaced_by_a_larger_one_at_intervals_grows() {
    for every in [5, 20, 30] {
        assert_eq!(replaced_at_times(|n| (1 + n / every) << 14, 240), [Kind::Growing], "every {every}th");
    }
    // Too few times.
    assert_eq!(replaced_at_times(|n| (1 + n / 60) << 14, 240), []);
}

#[test]
fn what_is_replaced_by_a_larger_one_up_to_a_bound_does_not_grow() {
    // It doubles when it is full.
    assert_eq!(replaced_at_times(|n| n.next_power_of_two() << 12, 240), []);
    // It has its size by now.
    assert_eq!(replaced_at_times(|n| (1 + n.min(120) / 10) << 14, 240), []);
    // The longest batch so far.
    let mut r = Random(7);
    let lengths: Vec<u64> = (0..=240).map(|_| 64 + r.below(400)).collect();
    assert_eq!(
        replaced_at_times(|n| lengths[..=n as usize].iter().max().copied().unwrap_or(1) << 9, 240),
        []
    );
}

/// What is added in each step is taken out now and then, in order or at random, or not any more after a time.
#[test]
fn what_is_taken_out_more_seldom_than_it_is_added_grows() {
    for (percent, steps, until, in_order) in [
        (16, 150, 150, false),
        (24, 200, 200, false),
        (69, 200, 200, false),
        (31, 150, 150, false),
        (65, 300, 300, false),
        (22, 60, 60, true),
        (50, 400, 400, true),
        (50, 200, 150, true),
        (33, 60, 45, true),
    ] {
        for seed in 1..6 {
            let (mut r, mut held) = (Random(seed * 7919), Vec::new());
            let step = |s: &mut Shape, n: u64| {
                held.push(s.block(512, 7));
                if n < until && r.below(100) < percent {
                    let at = if in_order { 0 } else { r.below(held.len() as u64) as usize };
                    s.p.free(held.remove(at));
                }
            };
            let v = Shape::run(step, steps);
            let kinds: Vec<Kind> = v.findings.iter().map(|f| f.kind).collect();
            let grows = matches!(kinds[..], [Kind::Leak | Kind::Growing]);
            assert!(grows, "{percent} {steps} {until} {seed}: {v:#?}");
        }
    }
}
