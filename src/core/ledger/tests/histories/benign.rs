//! Programs that leak nothing: what each does to the site under suspicion in one step. They know no rule.

use super::{SITE, Step};

pub(super) const BENIGN: [(&str, Step); 22] = [
    ("a queue that gets and gives at random, as much", |h| {
        let come = h.r.below(3);
        h.receive(come);
        h.serve();
    }),
    ("sessions that come and go at random", |h| {
        if h.chance(0.7) {
            h.receive(1);
        }
        if h.chance(0.7) && !h.held.is_empty() {
            let any = h.r.below(h.held.len() as u64) as usize;
            let a = h.held.swap_remove(any);
            h.p.free(a);
        }
    }),
    ("churn", |h| {
        let n = h.r.below(8);
        let all: Vec<u64> = (0..n).map(|_| h.suspect()).collect();
        all.into_iter().for_each(|a| h.p.free(a));
    }),
    ("warm-up and late states", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.8);
        }
        if h.at == 1 || h.at == h.period || h.at == h.period * 3 / 2 {
            h.keep(12);
        }
    }),
    ("first in, first out", |h| {
        if h.at == 1 {
            h.period = h.between(0.02, 0.35);
        }
        h.receive(1);
        if h.held.len() as u64 > h.period {
            h.serve();
        }
    }),
    ("a cache that evicts at random", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.3);
        }
        for _ in 0..2 {
            let a = h.suspect();
            h.held.push(a);
        }
        while h.held.len() as u64 > h.period {
            let at = h.r.below(h.held.len() as u64) as usize;
            let old = h.held.swap_remove(at);
            h.p.free(old);
        }
    }),
    ("a cache of shapes that fills up", |h| {
        // As many shapes as come by in a third of the run, all as likely as each other.
        if h.at == 1 {
            h.period = h.between(0.05, 0.35);
            h.known = vec![false; h.period as usize];
        }
        let shape = h.r.below(h.period) as usize;
        if !std::mem::replace(&mut h.known[shape], true) {
            h.suspect();
        }
    }),
    ("a cache of shapes, some of them rare", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.25);
            h.known = vec![false; h.period as usize];
        }
        // The smaller of two draws: the last ones come rarely.
        let shape = h.r.below(h.period).min(h.r.below(h.period)) as usize;
        if !std::mem::replace(&mut h.known[shape], true) {
            h.suspect();
        }
        let gone = h.suspect();
        h.p.free(gone);
    }),
    ("a list that is cleared every epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.35);
        }
        h.receive(1);
        if h.at.is_multiple_of(h.period) {
            h.free_all();
        }
    }),
    ("spikes", |h| {
        if h.at == 1 {
            h.period = h.between(0.15, 0.35).max(4);
        }
        if h.at % h.period > h.period * 2 / 3 {
            let a = h.suspect();
            h.held.push(a);
        } else {
            h.free_all();
        }
    }),
    ("lengths that vary", |h| {
        let length = 1 + h.r.below(40);
        let a = h.block(512 * length, SITE);
        h.free_all();
        h.held.push(a);
    }),
    ("lengths that grow, a curriculum", |h| {
        let length = 8 + h.at * 20 / h.steps + h.r.below(3);
        let a = h.block(512 * length, SITE);
        h.free_all();
        h.held.push(a);
    }),
    ("lengths that grow, and vary by more", |h| {
        let length = 64 + h.at * 40 / h.steps + h.r.below(8);
        let a = h.block(512 * length, SITE);
        h.free_all();
        h.held.push(a);
    }),
    ("lives of any length", |h| {
        if h.at == 1 {
            h.share = 0.05 + h.share * 0.4;
        }
        h.receive(1);
        let mut i = 0;
        while i < h.held.len() {
            if h.chance(h.share) {
                let old = h.held.swap_remove(i);
                h.p.free(old);
            } else {
                i += 1;
            }
        }
    }),
    ("the best three of each epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.03, 0.1);
        }
        if h.at.is_multiple_of(h.period) {
            let a = h.suspect();
            h.held.push(a);
            if h.held.len() > 3 {
                let at = h.r.below(4) as usize;
                let old = h.held.remove(at);
                h.p.free(old);
            }
        }
    }),
    ("snapshots at ever longer intervals", |h| {
        if h.at.is_power_of_two() {
            h.suspect();
        }
        let gone = h.suspect();
        h.p.free(gone);
    }),
    ("a cache that evicts the least recently used", |h| {
        // More keys than room; low ones come by more often.
        if h.at == 1 {
            h.period = h.between(0.05, 0.2).max(2);
            h.keys = vec![None; h.period as usize * 3];
        }
        for _ in 0..2 {
            let key = h.r.below(h.keys.len() as u64).min(h.r.below(h.keys.len() as u64)) as usize;
            let old = h.keys[key].map(|(_, address)| address);
            let address = old.unwrap_or_else(|| h.suspect());
            h.keys[key] = Some((h.at, address));
            let full = h.keys.iter().flatten().count() as u64 > h.period;
            let last = (0..h.keys.len()).filter(|&i| h.keys[i].is_some()).min_by_key(|&i| h.keys[i]);
            if let Some((_, address)) = last.filter(|_| full).and_then(|i| h.keys[i].take()) {
                h.p.free(address);
            }
        }
    }),
    ("a cache of shapes, beside much churn", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.3);
            h.known = vec![false; h.period as usize];
        }
        let shape = h.r.below(h.period) as usize;
        if !std::mem::replace(&mut h.known[shape], true) {
            h.suspect();
        }
        let all: Vec<u64> = (0..10).map(|_| h.block(256 << 20, SITE)).collect();
        all.into_iter().for_each(|a| h.p.free(a));
    }),
    ("a buffer that is filled once, then written round", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.33);
        }
        if h.at <= h.period {
            h.keep(2);
        }
    }),
    ("cleared when it holds too much", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.4) * 3;
        }
        let n = h.r.below(6);
        for _ in 0..n {
            let a = h.suspect();
            h.held.push(a);
        }
        if h.held.len() as u64 > h.period {
            h.free_all();
        }
    }),
    ("a batch that grows from epoch to epoch", |h| {
        if h.at == 1 {
            h.period = h.between(0.05, 0.15).max(3);
        }
        let new = h.block(512 * (1 + h.at / h.period), SITE);
        h.free_all();
        h.held.push(new);
    }),
    ("training and validation, each with its own batch", |h| {
        if h.at == 1 {
            h.period = h.between(0.1, 0.3).max(4);
        }
        let validates = h.at % h.period >= h.period * 2 / 3;
        let a = h.block(h.size << u64::from(validates), SITE);
        h.free_all();
        h.held.push(a);
    }),
];
