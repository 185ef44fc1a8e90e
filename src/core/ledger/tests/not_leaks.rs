//! Programs that look like leaks and are none.

use super::shapes::Shape;
use super::*;
use crate::format::event::StepSource;

/// Nothing is wrong with it, though a sawtooth may be named as what it is.
fn clean(step: impl FnMut(&mut Shape, u64), steps: u64) {
    let mut findings = Shape::run(step, steps).findings;
    findings.retain(|f| f.kind != verdict::Kind::Periodic);
    assert_eq!(findings, []);
}

#[test]
fn warm_up_and_plateaus_are_none() {
    for steps in [15, 30, 150] {
        clean(|_, _| {}, steps);
        // Optimizer state, an average of the weights, a lazily made buffer.
        clean(
            |s, n| {
                if [1, 30, 60].contains(&n) {
                    (0..20).for_each(|_| s.keep(65_536, 7));
                }
            },
            steps,
        );
    }
    // Something that filled up in the first third and stands since.
    clean(
        |s, n| {
            if n <= 50 {
                s.keep(512, 7)
            }
        },
        150,
    );
}

#[test]
fn a_bounded_cache_with_churn_is_none() {
    // The last 10 outputs.
    clean(
        |s, n| {
            let a = s.block(4096, 7);
            s.held.insert(0, a);
            if s.held.len() > 11 {
                let old = s.held.remove(10);
                s.p.free(old);
            }
            let _ = n;
        },
        150,
    );
    // A list that is cleared every 20 steps.
    let mut list = Vec::new();
    clean(
        move |s, n| {
            list.push(s.block(512, 7));
            if n.is_multiple_of(20) {
                list.drain(..).for_each(|a| s.p.free(a));
            }
        },
        190,
    );
    // Entries replaced at random.
    let (mut cache, mut r) = (Vec::new(), Random(3));
    clean(
        move |s, _| {
            for _ in 0..4 {
                cache.push(s.block(2048, 7));
            }
            while cache.len() > 30 {
                let old = cache.swap_remove(r.below(cache.len() as u64) as usize);
                s.p.free(old);
            }
        },
        300,
    );
}

#[test]
fn a_spike_at_the_end_is_none() {
    let mut kept = Vec::new();
    clean(
        move |s, n| {
            if n % 60 > 45 {
                kept.push(s.block(90_000, 7));
            } else {
                kept.drain(..).for_each(|a| s.p.free(a));
            }
        },
        180,
    );
}

/// A loop gathers; behind it all of that is freed, and the program goes on with `later` allocations, each of so many bytes,
/// before it frees what it has, if anything.
fn gathers(
    trains: bool,
    freed_first: bool,
    later: u32,
    bytes: u64,
) -> (Vec<verdict::Kind>, Vec<verdict::Kind>) {
    let mut outputs = Vec::new();
    let mut s = Shape::default();
    for _ in 0..100 {
        outputs.push(s.block(65_536, 7));
        let source = if trains { StepSource::Optimizer } else { StepSource::Loop };
        s.p.push(Event { class: source as u8, ..Event::new(EventKind::StepEnd) });
    }
    let mut free = |s: &mut Shape| outputs.drain(..).for_each(|block| s.p.free(block));
    if freed_first {
        free(&mut s);
    }
    for _ in 0..later {
        let query = s.block(bytes, 8);
        s.p.free(query);
    }
    free(&mut s);
    s.p.exit();
    let verdict = verdict::judge(&s.p.replay());
    let kinds = |all: &[verdict::Finding]| all.iter().map(|f| f.kind).collect();
    (kinds(&verdict.findings), kinds(&verdict.non_leaks))
}

#[test]
fn what_a_loop_gathers_and_gives_back_before_the_program_goes_on_is_none() {
    use verdict::Kind::{Gathered, Leak};
    let gathers = |trains, freed_first, later| gathers(trains, freed_first, later, 2048);
    assert_eq!(gathers(false, true, 12), (vec![], vec![Gathered]));
    // The program ends with it.
    assert_eq!(gathers(false, true, 2).0, [Leak]);
    assert_eq!(gathers(false, false, 12).0, [Leak]);
    // A longer training would run out of memory.
    assert_eq!(gathers(true, true, 12).0, [Leak]);
}

#[test]
fn what_a_loop_gathers_and_joins_to_one_is_none() {
    use verdict::Kind::{Gathered, Leak};
    for trains in [false, true] {
        for freed_first in [false, true] {
            assert_eq!(gathers(trains, freed_first, 1, 100 * 65_536), (vec![], vec![Gathered]));
            // Some other block.
            for other in [80, 97, 101] {
                assert_eq!(gathers(trains, freed_first, 1, other * 65_536).0, [Leak]);
            }
        }
    }
}

/// What fails in the second fifth of the run is kept, and each step has its newest output in hand.
#[test]
fn what_the_last_step_has_in_hand_does_not_go_on_with_what_was_kept_before() {
    let mut last = None;
    clean(
        move |s, n| {
            let new = s.block(2048, 7);
            let old = last.replace(new);
            // The one before was kept.
            if !(21..34).contains(&n) {
                old.into_iter().for_each(|old| s.p.free(old));
            }
        },
        60,
    );
}
