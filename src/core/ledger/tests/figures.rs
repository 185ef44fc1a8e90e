//! How much a leak is: what a step adds, over which steps, where it does not come in each of them, or in parts.

use super::shapes::Shape;
use super::*;
use crate::format::event::StepSource;
use verdict::{CountedSteps, Finding, Kind};

fn only(step: impl FnMut(&mut Shape, u64), steps: u64) -> Finding {
    let v = Shape::run(step, steps);
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!(f.kind, Kind::Leak);
    f.clone()
}

/// Ten in thirty steps: a third of a block in each, wherever in a pause the run ends.
#[test]
fn what_comes_in_bursts_is_averaged_over_whole_intervals() {
    for steps in [230, 240, 250, 260] {
        let step = |s: &mut Shape, n: u64| {
            if n / 10 % 3 == 1 {
                s.keep(6144, 7);
            }
        };
        assert_eq!(only(step, steps).growth_bytes_per_step, 2048.0, "{steps}");
    }
}

/// Every second step adds, by and by more: of late one of two steps adds this much.
#[test]
fn what_is_added_of_late_is_an_average_too() {
    let step = |s: &mut Shape, n: u64| {
        if n.is_multiple_of(2) {
            s.keep((1 + n / 25) * 4096, 7);
        }
    };
    let late = only(step, 200).late_bytes_per_step.expect("it adds more and more");
    assert!((late - 8.0 * 4096.0 / 2.0).abs() < 100.0, "{late}");
}

/// Others of its line live for twenty steps: what came in the last of them may yet be freed.
#[test]
fn steps_are_counted_up_to_what_is_old_enough() {
    let mut others = std::collections::VecDeque::new();
    let step = |s: &mut Shape, n: u64| {
        s.keep(4096, 7);
        others.push_back(s.block(4096, 7));
        if n > 20 {
            others.pop_front().into_iter().for_each(|block| s.p.free(block));
        }
    };
    let v = Shape::run(step, 200);
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    let last = f.oldest_step + f.span - 1;
    assert_eq!((f.until_step, last), (Some(180), 180), "{f:#?}");
}

/// Trainings and evaluations of one step each, by turns; each keeps something.
#[test]
fn phases_of_one_step_are_no_ends_of_others() {
    let mut s = Shape::default();
    for n in 0..61 {
        s.keep(65_536, 7);
        let source = if n % 2 == 0 { StepSource::Optimizer } else { StepSource::Loop };
        s.p.push(Event { class: source as u8, ..Event::new(EventKind::StepEnd) });
    }
    let v = verdict::judge(&s.p.replay());
    let [f] = &v.findings[..] else { panic!("{v:#?}") };
    assert_eq!((f.counted, f.growth_bytes_per_step), (CountedSteps::All, 65_536.0));
}

/// A ring of buffers that grow for nearly two thirds of the run, and then not any more: by now they would have outgrown what the
/// allocator leaves them to spare.
#[test]
fn what_has_stopped_to_grow_does_not_grow() {
    let ring = |until: u64| {
        let mut ring = std::collections::VecDeque::new();
        let step = move |s: &mut Shape, n: u64| {
            ring.push_back(s.block((1 << 20) + n.min(until) * (64 << 10), 7));
            if ring.len() > 4 {
                ring.pop_front().into_iter().for_each(|old| s.p.free(old));
            }
        };
        Shape::run(step, 120).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(ring(75), []);
    assert_eq!(ring(120), [Kind::Growing]);
}
