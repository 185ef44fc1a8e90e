//! Programs that leak: what each does to the site under suspicion in one step. They know no rule.

use super::{SITE, Step};

pub(super) const LEAKING: [(&str, Step); 24] = [
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
        h.receive(1);
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
        h.receive(1);
        if h.at.is_multiple_of(h.period) {
            h.serve();
        }
    }),
    ("a queue whose consumer takes many at a time, but too few", |h| {
        if h.at == 1 {
            h.period = h.between(0.02, 0.04).max(4);
        }
        h.receive(1);
        if h.at.is_multiple_of(h.period) {
            for a in h.held.drain(..h.period as usize / 2) {
                h.p.free(a);
            }
        }
    }),
    ("a queue that gets and gives at random, but gives less", |h| {
        let come = h.r.below(3);
        h.receive(come);
        if h.chance(0.4) {
            h.serve();
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
