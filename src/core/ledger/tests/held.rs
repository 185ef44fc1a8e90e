//! Verdicts by who holds what a program left.

use super::shapes::Shape;
use super::*;
use crate::format::entry::Retention;
use verdict::{Confidence, Kind, SiteHolder, Verdict};

/// A holder of so many blocks of a size.
fn holder(holder: u64, retention: Retention, blocks: u64, size: u64) -> SiteHolder {
    SiteHolder {
        holder,
        object: holder,
        retention,
        is_state: false,
        is_of_call: false,
        blocks,
        bytes: blocks * size,
    }
}

/// Judges a run by the holders of what these stacks have left; each is told how many blocks those are.
fn judged(ledger: &Ledger, stacks: &[u32], holders: impl Fn(u64) -> Vec<SiteHolder>) -> Verdict {
    let held = |site| {
        let site = ledger.site(site).filter(|s| stacks.contains(&s.stack));
        site.map_or_else(Vec::new, |s| holders(s.live_blocks))
    };
    let line = u64::from;
    let context = verdict::Context {
        location: &line,
        way: &line,
        lines: &line,
        holders: &held,
        is_optimizer: &|_| false,
    };
    verdict::judge_by(ledger, context)
}

/// A list gets another entry every so many steps, and so does a cache that is looked up by a shape.
#[test]
fn what_comes_now_and_then_in_ever_other_sizes_may_be_a_cache() {
    let graded = |size: fn(u64) -> u64| {
        let step = |s: &mut Shape, n: u64| {
            if n.is_multiple_of(10) {
                s.keep(size(n / 10), 7)
            }
        };
        let list = |blocks| vec![holder(1, Retention::Unbounded, blocks, 512)];
        let v = judged(&Shape::ran(step, 300), &[7], list);
        let [f] = &v.findings[..] else { panic!("{v:?}") };
        (f.kind, f.confidence)
    };
    assert_eq!(graded(|_| 4096), (Kind::Leak, Confidence::Confirmed));
    assert_eq!(graded(|n| n * 512), (Kind::Leak, Confidence::Likely));
}

/// One holder has what each step leaves, and more that every tenth step leaves from elsewhere.
#[test]
fn the_parts_of_a_step_are_no_more_than_the_step() {
    let step = |s: &mut Shape, n: u64| {
        s.keep(2048, 7);
        if n % 10 == 5 {
            s.keep(20_480, 8);
        }
    };
    let list = |blocks| vec![holder(1, Retention::Unbounded, blocks, 2048)];
    let v = judged(&Shape::ran(step, 200), &[7, 8], list);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    let most = f.sites.iter().map(|part| part.bytes_per_step).fold(0.0, f64::max);
    assert_eq!((f.bytes_per_step, f.sites.len(), most < 2200.0), (2048.0, 2, true), "{most}");
}

/// A search met 30 entries; a hundred are there by now, of at most so many.
#[test]
fn a_bound_is_reckoned_from_what_was_there_when_it_was_met() {
    let ledger = Shape::ran(|s, _| s.keep(4096, 7), 100);
    for (max_entries, bound) in [(1000, 4096 * 1000), (50, 4096 * 100)] {
        let deque = Retention::Bounded { entries: 30, max_entries };
        let v = judged(&ledger, &[7], |_| vec![holder(1, deque, 28, 4096)]);
        let bounds: Vec<_> = v.non_leaks.iter().filter_map(|f| f.bound_bytes).collect();
        assert_eq!((v.findings.len(), bounds), (0, vec![bound]), "{max_entries}: {v:#?}");
    }
}

/// A list that the program drops entries of beyond a limit, and one that has passed it.
#[test]
fn a_limit_bounds_what_has_not_passed_it() {
    let ledger = Shape::ran(|s, _| s.keep(4096, 7), 100);
    let judged = |entries, limit| {
        let list = Retention::Limited { entries, limit };
        let v = judged(&ledger, &[7], |_| vec![holder(1, list, 28, 4096)]);
        let mut grows = v.findings.iter().chain(&v.non_leaks).filter(|f| f.cohorts > 1);
        grows.next().map(|f| (f.kind, f.limit)).expect("it grows")
    };
    assert_eq!(judged(28, 1000), (Kind::Cache, Some(1000)));
    assert_eq!(judged(28, 100), (Kind::Cache, Some(100)));
    assert_eq!(judged(28, 98), (Kind::Leak, None));
    // Each entry has ever more blocks: what limits their number does not limit these.
    assert_eq!(judged(4, 1000), (Kind::Leak, None));
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
    let kind = |in_use: u64| {
        let v = judged(&ledger, &[7], |_| {
            let names = (2..6).map(|name| holder(name, Retention::Unbounded, in_use, 512));
            [holder(1, Retention::Unreachable, 16, 512)].into_iter().chain(names).collect()
        });
        let [f] = &v.findings[..] else { panic!("{v:?}") };
        f.kind
    };
    assert_eq!(kind(8), Kind::PendingGc);
    assert_eq!(kind(24), Kind::Leak);
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
    let cycles = |blocks| vec![holder(1, Retention::Unreachable, blocks, 2048)];
    let v = judged(&Shape::ran(step, 200), &[7], cycles);
    let [f] = &v.findings[..] else { panic!("{v:?}") };
    assert_eq!((f.kind, f.longest_life), (Kind::PendingGc, 0));
}

/// Something gathers in the first part of the run; then the line frees all that it makes, soon or late.
#[test]
fn a_container_without_a_bound_that_takes_in_no_more_is_no_cache() {
    let kind = |retention: Retention| {
        let mut late = Vec::new();
        let step = |s: &mut Shape, n: u64| {
            let new = s.block(512, 7);
            if n > 120 {
                late.push(new);
                if late.len() > 2 {
                    s.p.free(late.remove(0));
                }
            }
        };
        let v = judged(&Shape::ran(step, 200), &[7], |blocks| vec![holder(1, retention, blocks, 512)]);
        assert!(v.findings.is_empty(), "{v:#?}");
        let said = v.non_leaks.iter().filter(|f| f.kind != Kind::WarmUp);
        said.map(|f| (f.kind, f.evidence_step)).collect::<Vec<_>>()
    };
    // The latest release shows the cache, the latest growth the container.
    assert_eq!(kind(Retention::Unknown), [(Kind::Cache, 200)]);
    assert_eq!(kind(Retention::Unbounded), [(Kind::Plateau, 120)]);
}

/// A model, its gradients in the next step, its optimizer's state some steps later: one thing in every tenth step, also where the
/// first part has come in the warm-up.
#[test]
fn parts_that_follow_each_other_are_one_thing() {
    for first in [1, 3] {
        let step = |s: &mut Shape, n: u64| match (n + 10 - first) % 10 {
            0 => s.keep(8192, 7),
            1 => s.keep(4096, 8),
            6 => s.keep(512, 9),
            _ => {}
        };
        let list = |blocks| vec![holder(1, Retention::Unbounded, blocks, 4096)];
        let v = judged(&Shape::ran(step, 230), &[7, 8, 9], list);
        let [f] = &v.findings[..] else { panic!("{v:?}") };
        let parts: Vec<f64> = f.sites.iter().map(|part| part.bytes_per_step).collect();
        assert_eq!((f.bytes_per_step, &parts[..]), (12_800.0, &[8192.0, 4096.0, 512.0][..]), "{first}");
    }
}

/// What comes at random may come less often of late by chance: a list takes in all of it, a cache what it has not yet.
#[test]
fn what_a_list_gets_does_not_fill_it_up() {
    let kept = [
        4, 5, 13, 15, 17, 19, 24, 25, 28, 31, 33, 36, 38, 46, 55, 61, 69, 73, 77, 91, 96, 97, 102, 114, 127,
        147, 156, 163, 171, 172, 179, 188, 197, 220, 224, 233, 251, 258, 263, 265, 267, 275,
    ];
    let kinds = |retention| {
        let step = |s: &mut Shape, n: u64| {
            if kept.contains(&n) {
                s.keep(4096, 7);
            }
        };
        let v = judged(&Shape::ran(step, 300), &[7], |blocks| vec![holder(1, retention, blocks, 4096)]);
        v.findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Retention::Unbounded), []);
    assert_eq!(kinds(Retention::Appended), [Kind::Leak]);
}
