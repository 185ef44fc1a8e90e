//! Programs that leave garbage in cycles, which only the collector frees.

use super::shapes::Shape;
use super::*;
use crate::format::entry::Retention;
use verdict::{Kind, SiteHolder};

/// As `loss = criterion(model(x), y)` does where another object that refers to itself has the loss: one block of the
/// line is freed when the next step assigns the name anew, the other waits for the collector.
#[test]
fn garbage_of_a_line_whose_other_blocks_the_next_step_frees() {
    let (mut rebound, mut cycles) = (None, Vec::new());
    let step = |s: &mut Shape, n: u64| {
        let new = s.block(512, 7);
        if let Some(old) = rebound.replace(new) {
            s.p.free(old);
        }
        cycles.push(s.block(2048, 7));
        // The collector runs once.
        if n == 120 {
            cycles.drain(..).for_each(|a| s.p.collect(a));
        }
    };
    let v = Shape::run(step, 160);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.kind, f.bytes_per_step, f.live_blocks), (Kind::PendingGc, 2048.0, 41));
}

#[test]
fn how_long_garbage_waits_is_known_of_a_collection_near_the_end() {
    let mut cycles = Vec::new();
    let step = |s: &mut Shape, n: u64| {
        cycles.push(s.block(2048, 7));
        if n == 4 || n == 198 {
            cycles.drain(..).for_each(|a| s.p.collect(a));
        }
    };
    let v = Shape::run(step, 200);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.kind, f.longest_life), (Kind::PendingGc, 198 - 5));
}

/// Training and, now and then, evaluation run the line; the collector has met the training's blocks only.
#[test]
fn garbage_that_comes_from_the_same_line_now_and_then_is_the_same_cause() {
    let mut cycles = Vec::new();
    let step = |s: &mut Shape, n: u64| {
        cycles.push(s.block(2048, 7));
        if n.is_multiple_of(20) {
            cycles.drain(..).for_each(|a| s.p.collect(a));
        }
        if n % 40 == 25 {
            (0..4).for_each(|_| s.keep(2048, 8));
        }
    };
    let ledger = Shape::ran(step, 190);
    let line = |stack| if stack == 8 { 7 } else { u64::from(stack) };
    let held = |site| {
        let blocks = ledger.site(site).filter(|s| [7, 8].contains(&s.stack)).map(|s| s.live_blocks);
        let cycle = |blocks| SiteHolder {
            holder: 1,
            object: 1,
            retention: Retention::Unreachable,
            is_state: false,
            blocks,
            bytes: blocks * 2048,
        };
        blocks.map(cycle).into_iter().collect()
    };
    let v = verdict::judge_by(
        &ledger,
        verdict::Context { location: &line, way: &line, holders: &held, is_optimizer: &|_| false },
    );
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!((f.kind, f.bytes_per_step, f.live_blocks), (Kind::PendingGc, 2048.0, 10 + 5 * 4));
}

/// Of the models that were made one is in use, by several names; those before it are in cycles.
#[test]
fn garbage_is_told_from_what_the_newest_object_has() {
    let step = |s: &mut Shape, n: u64| {
        if n % 10 == 1 {
            (0..8).for_each(|_| s.keep(512, 7));
        }
    };
    let ledger = Shape::ran(step, 120);
    let line = u64::from;
    let judged = |in_use: u64| {
        let of = |holder, retention, blocks| SiteHolder {
            holder,
            object: holder,
            retention,
            is_state: false,
            blocks,
            bytes: blocks * 512,
        };
        let held = |site| {
            let is_one = ledger.site(site).is_some_and(|s| s.stack == 7);
            let mut all = vec![of(1, Retention::Unreachable, 16)];
            all.extend((2..6).map(|name| of(name, Retention::Unbounded, in_use)));
            if is_one { all } else { Vec::new() }
        };
        let context =
            verdict::Context { location: &line, way: &line, holders: &held, is_optimizer: &|_| false };
        let v = verdict::judge_by(&ledger, context);
        let [f] = &v.findings[..] else { panic!("{v:?}") };
        f.kind
    };
    assert_eq!(judged(8), Kind::PendingGc);
    assert_eq!(judged(24), Kind::Leak);
}

/// What else the line frees lives for a step, and is no garbage.
#[test]
fn garbage_that_nothing_has_collected_does_not_tell_when_it_goes() {
    let mut rebound = None;
    let step = |s: &mut Shape, n: u64| {
        let new = s.block(2048, 7);
        if let Some(old) = rebound.replace(new).filter(|_| n.is_multiple_of(2)) {
            s.p.free(old);
        }
    };
    let ledger = Shape::ran(step, 200);
    let line = u64::from;
    let held = |site| {
        let blocks = ledger.site(site).filter(|s| s.stack == 7).map(|s| s.live_blocks);
        let cycle = |blocks| SiteHolder {
            holder: 1,
            object: 1,
            retention: Retention::Unreachable,
            is_state: false,
            blocks,
            bytes: blocks * 2048,
        };
        blocks.map(cycle).into_iter().collect()
    };
    let context = verdict::Context { location: &line, way: &line, holders: &held, is_optimizer: &|_| false };
    let v = verdict::judge_by(&ledger, context);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.kind, f.longest_life), (Kind::PendingGc, 0));
}
