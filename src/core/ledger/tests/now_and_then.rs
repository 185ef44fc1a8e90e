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
