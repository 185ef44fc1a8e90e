//! What leaks in some steps only: how often, how much on average, and when it has stopped.

use super::shapes::Shape;
use super::*;
use verdict::Kind;

/// Each entry of a table is made when it is first asked for, and that is about every twelfth step until there is one for all.
#[test]
fn what_came_now_and_then_and_stays_away_for_longer_than_ever_has_stopped() {
    let made = [1, 14, 27, 40, 50, 66, 77, 88, 99, 110, 121, 144, 156, 168, 180, 192];
    for (steps, found) in [(200, 1), (240, 0)] {
        let step = |s: &mut Shape, n: u64| {
            if made.contains(&n) {
                s.keep(4096, 7);
            }
        };
        assert_eq!(Shape::run(step, steps).findings.len(), found, "{steps} steps");
    }
}

/// What an epoch keeps of every step and the others of some: that it came more often is no sign that it comes to an end.
#[test]
fn what_comes_less_often_than_at_first_but_goes_on_is_a_leak() {
    let run = |first: u64, every: u64, last: u64| {
        let step = |s: &mut Shape, n: u64| {
            let block = s.block(4096, 7);
            if n > last || (n > first && !n.is_multiple_of(every)) {
                s.p.free(block);
            }
        };
        Shape::run(step, 300)
    };
    for (first, every) in [(100, 10), (60, 8), (150, 3), (40, 5)] {
        let v = run(first, every, 300);
        let [f] = &v.findings[..] else { panic!("{first} {every}: {v:#?}") };
        let held = (first + (300 - first) / every) * 4096;
        assert_eq!((f.kind, f.bytes_per_step), (Kind::Leak, 4096.0), "{first} {every}");
        assert!((f.growth_bytes_per_step * every as f64 / 4096.0 - 1.0).abs() < 0.1, "{f:#?}");
        assert!(f.live_bytes.abs_diff(held) <= 4096, "{} of {held}", f.live_bytes);
        // It stopped.
        assert!(run(first, every, 200).findings.is_empty(), "{first} {every}");
    }
}

/// Wherever in a gap the run ends.
#[test]
fn what_comes_every_few_steps_has_its_own_average() {
    for steps in [196, 200, 203, 204] {
        let v = Shape::run(
            |s, n| {
                if n % 5 == 0 {
                    s.keep(1000, 7)
                }
            },
            steps,
        );
        let [f] = &v.findings[..] else { panic!("{v:?}") };
        assert_eq!(f.growth_bytes_per_step, 200.0, "{steps} steps");
    }
}

#[test]
fn a_leak_in_every_tenth_step() {
    let step = |s: &mut Shape, n: u64| {
        if n.is_multiple_of(10) {
            (0..3).for_each(|_| s.keep(512, 7));
        }
    };
    let v = Shape::run(step, 120);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.bytes_per_step, f.blocks_per_step), (1536.0, 3.0));
    assert!((0.08..0.13).contains(&f.growth_step_ratio), "{}", f.growth_step_ratio);
}

/// One more every ten steps, ten in all.
#[test]
fn what_came_at_intervals_and_is_overdue_has_stopped() {
    for (steps, kinds) in [(105, vec![Kind::Leak]), (130, vec![])] {
        let step = |s: &mut Shape, n: u64| {
            if n % 10 == 1 && n < 100 {
                s.keep(4096, 7);
            }
        };
        let v = Shape::run(step, steps);
        assert_eq!(v.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), kinds, "{steps}: {v:#?}");
    }
}

/// The births after warm-up come closer to each other by chance: the average is of all that there is, as `growth_step_ratio` is.
#[test]
fn the_average_of_what_comes_at_random_is_what_there_is_by_the_steps_since_its_first() {
    let at = [
        3, 11, 60, 84, 91, 95, 103, 117, 121, 134, 139, 150, 158, 163, 171, 185, 190, 204, 211, 226, 230, 247,
    ];
    let v = Shape::run(
        |s, n| {
            let block = s.block(4096, 7);
            if !at.contains(&n) {
                s.p.free(block);
            }
        },
        260,
    );
    let [f] = &v.findings[..] else { panic!("{:#?}", v.findings) };
    assert_eq!((f.cohorts, f.span, f.live_blocks), (22, 258, 22));
    assert_eq!((f.growth_bytes_per_step, f.growth_step_ratio), (22.0 * 4096.0 / 258.0, 22.0 / 258.0));
}
