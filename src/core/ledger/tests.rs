//! Synthetic programs: random ones against sums and checkpoints, written ones against what they must show.

mod driver;
mod figures;
mod garbage;
mod held;
mod histories;
mod legal;
mod not_leaks;
mod now_and_then;
mod oracle;
mod renewed;
mod shapes;

use std::collections::BTreeMap;

use super::out_of_memory::{MAX_SITES, MAX_SNAPSHOTS};
use super::*;
use crate::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};

/// A program, as the events it makes.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) events: Vec<Event>,
}

impl Program {
    pub(crate) fn push(&mut self, mut e: Event) {
        e.seq = self.events.len() as u64 + 1;
        self.events.push(e);
    }

    pub(crate) fn alloc(&mut self, address: u64, size: u64, stack: u32) {
        self.push(Event { address, size, stack, device: 0, ..Event::new(EventKind::BlockAlloc) });
    }

    pub(crate) fn free(&mut self, address: u64) {
        self.push(Event { address, device: 0, ..Event::new(EventKind::BlockFree) });
    }

    /// As `free`, by the garbage collector.
    fn collect(&mut self, address: u64) {
        self.push(Event { address, device: 0, context: 1, ..Event::new(EventKind::BlockFree) });
    }

    pub(crate) fn driver(&mut self, kind: EventKind, class: MemoryClass, address: u64, size: u64) {
        let device = if class == MemoryClass::Host { NO_DEVICE } else { 0 };
        let e = Event {
            address,
            size,
            class: class as u8,
            device,
            stack: 900,
            entry_point: 3,
            ..Event::new(kind)
        };
        self.push(e);
    }

    pub(crate) fn step(&mut self) {
        self.boundary(0);
    }

    fn boundary(&mut self, context: u8) {
        let address = self.events.len() as u64 * 1000;
        self.push(Event { address, class: 1, context, ..Event::new(EventKind::StepEnd) });
    }

    fn exit(&mut self) {
        self.push(Event { address: 77, ..Event::new(EventKind::Exit) });
    }

    pub(crate) fn replay(&self) -> Ledger {
        let mut ledger = Ledger::default();
        self.events.iter().for_each(|e| ledger.apply(e));
        ledger
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Makes a program of anything at all: plausible events with garbage among them.
fn noise(seed: u64, count: usize) -> Program {
    let mut r = Random(seed);
    let mut p = Program::default();
    for _ in 0..count {
        let mut e = Event::new(EventKind::StepEnd);
        e.kind = r.below(28) as u8;
        e.class = r.below(13) as u8;
        e.device = [0, 0, 1, NO_DEVICE][r.below(4) as usize];
        e.address = r.below(40) << 12;
        e.size = r.below(6) << 11;
        e.stack = r.below(7) as u32;
        e.context = r.below(3) as u8;
        e.entry_point = r.below(3) as u16;
        if r.below(200) == 0 {
            (e.address, e.size, e.stack) = (u64::MAX - r.below(3), (1 << 48) - 1, u32::MAX);
        }
        if e.kind == EventKind::Exit as u8 && r.below(300) != 0 {
            e.kind = EventKind::BlockAlloc as u8;
        }
        p.push(e);
        // The halves of a pair do follow each other, mostly.
        let second = match EventKind::from_code(e.kind) {
            Some(EventKind::Map) => EventKind::MapHandle,
            Some(EventKind::GraphNode) => EventKind::GraphExec,
            _ => continue,
        };
        if r.below(8) != 0 {
            p.push(Event { address: r.below(40) << 12, ..Event::new(second) });
        }
    }
    p
}

#[test]
fn a_checkpoint_anywhere_continues_as_if_it_had_not_been() {
    for seed in 0..20 {
        let p = noise(seed, 1500);
        let straight = p.replay();
        for cut in (0..p.events.len()).step_by(97) {
            let mut first = Ledger::default();
            p.events[..cut].iter().for_each(|e| first.apply(e));
            let bytes = postcard::to_stdvec(&first).expect("serialises");
            let mut second: Ledger = postcard::from_bytes(&bytes).expect("deserialises");
            assert_eq!(first, second);
            // The reader hands over everything still in the file: what the checkpoint covers is passed over.
            p.events.iter().for_each(|e| second.apply(e));
            assert!(straight == second, "seed {seed}, cut at {cut}");
            assert_eq!(verdict::judge(&straight), verdict::judge(&second));
            assert_eq!(retained(&straight, None), retained(&second, None));
        }
    }
}

#[test]
fn totals_are_the_sum_of_what_is_alive_whatever_came() {
    for seed in 100..140 {
        let mut ledger = Ledger::default();
        for e in &noise(seed, 2000).events {
            ledger.apply(e);
            if e.seq.is_multiple_of(50) {
                check_sums(&ledger, seed);
            }
        }
        check_sums(&ledger, seed);
    }
}

fn check_sums(ledger: &Ledger, seed: u64) {
    let blocks = ledger.blocks.iter().fold(0, |sum: u64, (_, b)| sum.wrapping_add(b.bytes));
    let driver = ledger.driver.iter().fold(0, |sum: u64, g| sum.wrapping_add(g.bytes));
    let sum = |of: fn(&Device) -> u64| ledger.devices().iter().map(of).fold(0, u64::wrapping_add);
    assert_eq!(blocks, sum(|d| d.block_bytes), "seed {seed}");
    let others = |d: &Device| d.host_bytes.wrapping_add(d.external_bytes).wrapping_add(d.code_bytes);
    assert_eq!(driver, sum(|d| d.driver_bytes()).wrapping_add(sum(others)), "seed {seed}");
    let sites = ledger.sites().fold(0, |sum: u64, (_, s)| sum.wrapping_add(s.live_bytes));
    let objects = sum(|d| d.live_bytes()).wrapping_add(sum(others));
    assert_eq!(sites, objects, "seed {seed}");
    if !ledger.exited() && ledger.step_count() == 0 {
        let judged = retained(ledger, None).iter().fold(0, |sum: u64, r| sum.wrapping_add(r.bytes));
        assert_eq!(judged, objects, "seed {seed}");
    }
}

#[test]
fn retained_at_a_boundary_is_what_was_alive_there() {
    let mut ledger = Ledger::default();
    let mut r = Random(5);
    let mut p = Program::default();
    let mut seen = Vec::new();
    let mut live = Vec::new();
    for step in 1..=60_u32 {
        for i in 0..r.below(30) {
            if r.below(2) == 0 || live.is_empty() {
                let address = (u64::from(step) << 20) + (i << 9);
                p.alloc(address, 512 * (1 + r.below(9)), r.below(5) as u32);
                live.push(address);
            } else {
                p.free(live.swap_remove(r.below(live.len() as u64) as usize));
            }
        }
        p.step();
        p.events[ledger.next_seq() as usize - 1..].iter().for_each(|e| ledger.apply(e));
        seen.push(retained(&ledger, None));
    }
    for (i, then) in seen.into_iter().enumerate() {
        let step = i as u32 + 1;
        assert_eq!(retained(&ledger, Some(step)), then, "step {step}");
        let record = ledger.step(step).expect("kept");
        assert_eq!(record.devices[0].block_bytes, then.iter().map(|r| r.bytes).sum::<u64>());
    }
    assert!(retained(&ledger, Some(61)).is_empty() && ledger.step(0).is_none());
}

#[test]
fn gaps_and_what_is_not_known_are_counted() {
    let mut ledger = Ledger::default();
    ledger.apply(&Event { seq: 5, kind: 200, ..Event::new(EventKind::Annotation) });
    ledger.apply(&Event { seq: 5, address: 8, ..Event::new(EventKind::BlockFree) });
    ledger.apply(&Event { seq: 9, address: 8, ..Event::new(EventKind::BlockFree) });
    ledger.apply(&Event { seq: 10, address: 8, class: 1, ..Event::new(EventKind::Free) });
    ledger.apply(&Event { seq: 11, address: 8, class: 99, ..Event::new(EventKind::Free) });
    assert_eq!((ledger.lost_events(), ledger.unknown_events(), ledger.next_seq()), (7, 2, 12));
    assert_eq!((ledger.unknown_frees()[0], ledger.unknown_frees()[1]), (1, 1));
}

#[test]
fn what_comes_late_is_taken_in_once() {
    let mut p = Program::default();
    for i in 0..20 {
        p.alloc(i << 12, 512, 1);
    }
    let handle = Event { address: 7, size: 9, class: 6, device: 0, ..Event::new(EventKind::Alloc) };
    p.push(handle);
    p.push(Event { address: 1 << 40, size: 9, ..Event::new(EventKind::Map) });
    p.push(Event { address: 7, ..Event::new(EventKind::MapHandle) });
    p.alloc(50 << 12, 512, 1);
    let straight = p.replay();
    // Threads stood still: three before an event of theirs, one before the second half of a pair.
    let late = [4, 5, 6, 22];
    let mut ledger = Ledger::default();
    p.events.iter().enumerate().filter(|(i, _)| !late.contains(i)).for_each(|(_, e)| ledger.apply(e));
    assert_eq!(ledger.lost_events(), 4);
    // A checkpoint comes between; the reader has everything that is in the file.
    let state = postcard::to_stdvec(&ledger).expect("serialises");
    for order in [[5, 4, 6, 22], [22, 6, 5, 4]] {
        let mut process = Ledger::replay(Some(&state), []).expect("is one");
        order.iter().for_each(|&i| process.apply(&p.events[i]));
        p.events.iter().for_each(|e| process.apply(e));
        assert_eq!((process.lost_events(), process.missed_frees()), (0, 0));
        assert_eq!(retained(&process, None), retained(&straight, None));
        // The mapping is there: it keeps the memory when the handle is released.
        let seq = process.next_seq();
        process.apply(&Event { seq, address: 7, class: 6, ..Event::new(EventKind::Free) });
        assert_eq!(process.devices()[0].driver_bytes(), 9);
    }
    let reader = Ledger::replay(Some(&state), p.events.iter().copied()).expect("is one");
    assert_eq!((reader.lost_events(), reader.blocks.len()), (0, 21));
}

#[test]
fn several_boundaries_of_one_step_are_one() {
    let mut p = Program::default();
    p.alloc(1 << 20, 512, 1);
    p.step();
    p.alloc(2 << 20, 512, 2); // between the two optimizers
    p.alloc(3 << 20, 512, 2);
    p.free(3 << 20);
    p.boundary(1);
    p.alloc(4 << 20, 512, 3);
    p.step();
    let ledger = p.replay();
    assert_eq!(ledger.step_count(), 2);
    assert_eq!(ledger.blocks.get(2 << 20).map(|b| b.birth), Some(1));
    assert_eq!(ledger.blocks.get(4 << 20).map(|b| b.birth), Some(2));
    assert_eq!(ledger.steps().len(), 2);
    assert_eq!(retained(&ledger, Some(1)).len(), 2);
    assert_eq!(ledger.step(1).map(|r| r.at_ns), Some(5000));
    // A first boundary has nothing to replace.
    let mut p = Program::default();
    p.boundary(1);
    assert_eq!(p.replay().step_count(), 1);
}

#[test]
fn the_allocators_total_is_compared_where_it_can_be() {
    let mut p = Program::default();
    // Of the moment of that number.
    let totals =
        |address, stack| Event { address, stack, device: 0, ..Event::new(EventKind::AllocatorTotals) };
    p.alloc(1 << 20, 512, 1);
    assert_eq!(p.replay().matches_allocator(), None);
    p.push(totals(512, 1));
    assert_eq!(p.replay().matches_allocator(), Some(true));
    p.alloc(2 << 20, 512, 1);
    p.push(totals(512, 2)); // before that block
    p.push(totals(7, u32::MAX));
    assert_eq!(p.replay().allocator_checks(), (1, 0));
    // With one missing that may be a block's, nothing can be said.
    let mut ledger = p.replay();
    ledger.apply(&Event { seq: 7, ..totals(2048, 6) });
    assert_eq!(ledger.allocator_checks(), (1, 0));
    p.push(totals(2048, 3));
    assert_eq!(p.replay().matches_allocator(), Some(false));
}

#[test]
fn running_out_of_memory_is_remembered_with_what_was_alive() {
    let mut p = Program::default();
    for i in 0..200 {
        p.alloc((i + 1) << 20, 512 * (i + 1), i as u32);
    }
    for i in 0..6 {
        p.push(Event { address: 9, size: i, device: 0, stack: 4, ..Event::new(EventKind::OutOfMemory) });
    }
    let ledger = p.replay();
    assert_eq!(ledger.out_of_memory_count(), 6);
    let kept = ledger.out_of_memory();
    assert_eq!((kept.len(), kept[3].requested_bytes, kept[3].sites.len()), (MAX_SNAPSHOTS, 5, MAX_SITES));
    assert_eq!(kept[0].sites[0].bytes, 512 * 200);
}

#[test]
fn running_out_of_memory_tells_what_was_carried_over_and_what_lay_empty() {
    let mut p = Program::default();
    let (small, large) = (1u64 << 40, 1u64 << 41);
    p.driver(EventKind::Alloc, MemoryClass::Linear, small, 1 << 20);
    p.driver(EventKind::Alloc, MemoryClass::Linear, large, 8 << 20);
    // Parameters, and an activation that dies in the step after its own; it is the third quarter of its
    // segment.
    p.alloc(small, 4096, 1);
    p.alloc(large, 2 << 20, 1);
    let activation = large + (4 << 20);
    for step in 0..9 {
        if step > 0 {
            p.free(activation);
        }
        p.alloc(activation, 2 << 20, 7);
        p.step();
    }
    p.push(Event {
        address: 4 << 20,
        size: 4 << 20,
        device: 0,
        stack: 4,
        ..Event::new(EventKind::OutOfMemory)
    });
    let ledger = p.replay();
    let [o] = ledger.out_of_memory() else { panic!("{:?}", ledger.out_of_memory()) };
    assert_eq!((o.carry_over_bytes, o.reserved_bytes), (2 << 20, 9 << 20));
    assert_eq!((o.free_in_segments_bytes, o.largest_free_block_bytes), ((5 << 20) - 4096, 2 << 20));
}

#[test]
fn a_finished_run_is_judged_as_of_its_exit() {
    let mut p = Program::default();
    p.driver(EventKind::Alloc, MemoryClass::Linear, 1 << 30, 1 << 21);
    for step in 0..50 {
        p.alloc((1 << 30) + step * 512, 512, 1);
        p.step();
    }
    let before = p.replay();
    p.exit();
    for step in 0..50 {
        p.free((1 << 30) + step * 512);
    }
    p.step();
    p.alloc(1 << 30, 4096, 1);
    p.driver(EventKind::Free, MemoryClass::Linear, 1 << 30, 0);
    p.exit();
    let ledger = p.replay();
    assert_eq!(retained(&ledger, None), retained(&before, None));
    assert_eq!(verdict::judge(&ledger), verdict::judge(&before));
    assert_eq!(ledger.judged_devices(), before.judged_devices());
    assert_eq!((ledger.step_count(), ledger.devices()[0].driver_bytes()), (50, 0));
}

#[test]
fn what_is_let_go_after_the_last_step_was_held_until_then() {
    let mut p = Program::default();
    for step in 0..50 {
        p.alloc(step * 512, 512, 1);
        p.step();
    }
    let before = verdict::judge(&p.replay());
    for step in 0..50 {
        p.free(step * 512);
    }
    // The function that held them returned; the exit comes later.
    assert_eq!(verdict::judge(&p.replay()), before);
    p.exit();
    let ended = verdict::judge(&p.replay());
    let mut told = before;
    told.findings[0].released_later = true;
    assert_eq!((ended.findings.len(), &ended), (1, &told));
}

#[test]
fn what_the_next_step_lets_go_was_no_leak() {
    let mut p = Program::default();
    for step in 0..50 {
        p.alloc(step * 512, 512, 1);
        p.step();
    }
    for step in 0..50 {
        p.free(step * 512);
    }
    p.step();
    assert_eq!(verdict::judge(&p.replay()).findings.len(), 0);
}

#[test]
fn a_boundary_placed_afterwards_is_as_one_noted_in_time() {
    let event = |kind, seq, address, size, stack| Event { seq, address, size, stack, ..Event::new(kind) };
    let boundary =
        |seq, size| Event { seq, size, class: 2, address: 7, device: 1, ..Event::new(EventKind::StepEnd) };
    let block = |seq: u64, at: u64| event(EventKind::BlockAlloc, seq, at << 12, 512, 1);
    let late = [block(1, 1), boundary(0, 2), block(2, 2), boundary(0, 3), block(3, 3)];
    let in_time = [block(1, 1), boundary(2, 0), block(3, 2), boundary(4, 0), block(5, 3)];
    let replayed = |events: &[Event]| Ledger::replay(None, events.iter().copied()).unwrap();
    let (late, in_time) = (replayed(&late), replayed(&in_time));
    assert_eq!(late.step_count(), 2);
    for step in 1..=2 {
        assert_eq!(retained(&late, Some(step)), retained(&in_time, Some(step)), "step {step}");
    }
    assert_eq!((late.lost_events(), in_time.lost_events()), (0, 0));
    // A checkpoint covers what lies before its last event.
    let state = postcard::to_stdvec(&late).unwrap();
    let again = [boundary(0, 2), boundary(0, 3), block(3, 3), boundary(0, 4), block(4, 4)];
    let on = Ledger::replay(Some(&state), again).unwrap();
    assert_eq!((on.step_count(), on.lost_events()), (3, 0));
}

#[test]
fn what_was_there_before_attaching_is_known_by_its_total() {
    let mut p = Program::default();
    let free = |address, size| Event { address, size, device: 0, ..Event::new(EventKind::BlockFree) };
    let total = |seq: u64, address| Event {
        address,
        size: 4 << 20,
        stack: seq as u32,
        device: 0,
        ..Event::new(EventKind::AllocatorTotals)
    };
    p.push(Event::new(EventKind::Attached));
    p.push(free(0x1000, 512));
    p.alloc(0x2000, 1024, 1);
    p.push(total(3, 1024 + 4096));
    p.step();
    let before = |p: &Program| p.replay().judged_devices()[0].before_bytes;
    assert_eq!((before(&p), p.replay().judged_devices()[0].reserved_bytes), (4096, 4 << 20));
    p.push(free(0x3000, 1536));
    p.driver(EventKind::Free, MemoryClass::Linear, 0x10_0000, 0);
    p.push(total(6, 1024 + 2560));
    p.step();
    let ledger = p.replay();
    assert_eq!((before(&p), ledger.unknown_frees().iter().sum::<u64>()), (2560, 0));
    assert_eq!(ledger.matches_allocator(), Some(true));
    // What is larger than all that was there was not.
    p.push(free(0x4000, 8192));
    assert_eq!((before(&p), p.replay().unknown_frees()[0]), (2560, 1));
}
