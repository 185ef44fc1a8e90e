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
            is_of_call: false,
            blocks,
            bytes: blocks * 2048,
        };
        blocks.map(cycle).into_iter().collect()
    };
    let v = verdict::judge_by(
        &ledger,
        verdict::Context {
            location: &line,
            way: &line,
            lines: &line,
            holders: &held,
            is_optimizer: &|_| false,
        },
    );
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!((f.kind, f.bytes_per_step, f.live_blocks), (Kind::PendingGc, 2048.0, 10 + 5 * 4));
}
