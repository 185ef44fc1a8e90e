//! The driver's level: references, mappings, segments.

use super::*;

const BASE: u64 = 1 << 40;
const CHUNK: u64 = 2 << 20;

fn bytes(p: &Program) -> (u64, u64, u64) {
    let ledger = p.replay();
    let d = &ledger.devices()[0];
    (d.segment_bytes, d.driver_allocation_bytes, d.driver_bytes())
}

impl Program {
    fn create(&mut self, handle: u64) {
        self.driver(EventKind::Alloc, MemoryClass::Physical, handle, CHUNK);
    }

    fn release(&mut self, handle: u64) {
        self.driver(EventKind::Free, MemoryClass::Physical, handle, 0);
    }

    fn map_at(&mut self, address: u64, handle: u64) {
        self.push(Event { address, size: CHUNK, ..Event::new(EventKind::Map) });
        self.push(Event { address: handle, ..Event::new(EventKind::MapHandle) });
    }

    fn range(&mut self, kind: EventKind, address: u64, size: u64) {
        self.push(Event { address, size, ..Event::new(kind) });
    }
}

#[test]
fn a_handle_lives_until_references_and_mappings_are_gone() {
    let mut p = Program::default();
    p.create(7);
    p.map_at(BASE, 7);
    p.map_at(BASE + CHUNK, 7);
    p.range(EventKind::Retain, 7, 0);
    p.release(7);
    p.release(7);
    assert_eq!(bytes(&p), (0, CHUNK, CHUNK), "mapped twice");
    p.release(7);
    assert_eq!(p.replay().unknown_frees()[MemoryClass::Physical as usize], 1, "one reference too many");
    p.range(EventKind::Unmap, BASE, CHUNK / 2);
    assert_eq!(bytes(&p).2, CHUNK, "not inside the range");
    p.range(EventKind::Unmap, BASE, 2 * CHUNK);
    assert_eq!(bytes(&p), (0, 0, 0));
}

#[test]
fn a_number_given_out_again_is_another_handle() {
    let mut p = Program::default();
    p.create(7);
    p.map_at(BASE, 7);
    p.release(7);
    p.create(7);
    assert_eq!((bytes(&p).2, p.replay().missed_frees()), (2 * CHUNK, 0));
    p.range(EventKind::Unmap, BASE, CHUNK);
    assert_eq!(bytes(&p).2, CHUNK);
    p.release(7);
    assert_eq!(bytes(&p).2, 0);
}

#[test]
fn one_block_claims_the_whole_address_range() {
    let mut p = Program::default();
    p.range(EventKind::Reserve, BASE, 1 << 35);
    for i in 0..3 {
        p.create(i + 1);
        p.map_at(BASE + i * CHUNK, i + 1);
    }
    p.create(50); // of another range
    p.map_at(1 << 45, 50);
    assert_eq!(bytes(&p), (0, 4 * CHUNK, 4 * CHUNK));
    p.alloc(BASE + CHUNK + 512, 1024, 1);
    assert_eq!(bytes(&p), (3 * CHUNK, CHUNK, 4 * CHUNK));
    // What is mapped into it later is a segment at once.
    p.create(4);
    p.map_at(BASE + 3 * CHUNK, 4);
    assert_eq!(bytes(&p), (4 * CHUNK, CHUNK, 5 * CHUNK));
    // Claimed memory is nobody's finding, and never was.
    p.step();
    let ledger = p.replay();
    assert_eq!(retained(&ledger, None), retained(&ledger, Some(1)));
    assert_eq!(retained(&ledger, None).iter().map(|r| r.bytes).collect::<Vec<_>>(), [CHUNK, 1024]);
    assert_eq!(ledger.judged_devices()[0].peak_bytes, CHUNK + 1024);
    // After the range is given back, the same addresses start anew.
    p.range(EventKind::Unmap, BASE, 4 * CHUNK);
    (1..=4).for_each(|h| p.release(h));
    p.range(EventKind::Unreserve, BASE, 1 << 35);
    p.create(9);
    p.map_at(BASE, 9);
    assert_eq!(bytes(&p), (0, 2 * CHUNK, 2 * CHUNK));
}

#[test]
fn a_pointer_with_a_block_in_it_is_a_segment_else_an_object() {
    let mut p = Program::default();
    p.driver(EventKind::Alloc, MemoryClass::Linear, BASE, CHUNK);
    p.driver(EventKind::Alloc, MemoryClass::Linear, BASE + CHUNK, 4096);
    p.driver(EventKind::Alloc, MemoryClass::Host, 4096, 100);
    p.alloc(BASE, 512, 1);
    assert_eq!(bytes(&p), (CHUNK, 4096, CHUNK + 4096));
    p.free(BASE);
    p.driver(EventKind::Free, MemoryClass::Linear, BASE, 0);
    assert_eq!(bytes(&p), (0, 4096, 4096));
    let ledger = p.replay();
    assert_eq!(ledger.devices().iter().map(|d| d.host_bytes).sum::<u64>(), 100);
    assert_eq!(ledger.judged_devices()[0].peak_bytes, 512 + 4096);
}

#[test]
fn a_free_that_failed_did_not_happen() {
    for exit in [false, true] {
        let mut p = Program::default();
        p.driver(EventKind::Alloc, MemoryClass::Linear, BASE, 4096);
        p.create(7);
        p.range(EventKind::Retain, 7, 0);
        p.step();
        if exit {
            p.exit();
        }
        let before = p.replay();
        p.driver(EventKind::Free, MemoryClass::Linear, BASE, 0);
        p.driver(EventKind::Free, MemoryClass::Physical, 7, 0);
        p.driver(EventKind::FreeFailed, MemoryClass::Physical, 7, 0);
        p.driver(EventKind::FreeFailed, MemoryClass::Linear, BASE, 0);
        let after = p.replay();
        assert_eq!(retained(&after, None), retained(&before, None));
        assert_eq!(bytes(&p), (0, CHUNK + 4096, CHUNK + 4096));
        assert_eq!(after.site(0).map(|s| (s.allocs, s.frees, s.live_blocks)), Some((2, 0, 2)));
        // And it can still be freed, and claimed.
        p.alloc(BASE, 512, 1);
        assert_eq!(bytes(&p).0, 4096);
        p.driver(EventKind::Free, MemoryClass::Linear, BASE, 0);
        p.release(7);
        p.release(7);
        assert_eq!(bytes(&p).2, 0);
    }
}

#[test]
fn a_context_takes_its_allocations_along() {
    let mut p = Program::default();
    let mut alloc = |context, address| {
        let of = Event { address, size: 512, class: 1, device: 0, context, ..Event::new(EventKind::Alloc) };
        p.push(of);
    };
    alloc(1, 1 << 20);
    alloc(2, 2 << 20);
    alloc(1, 3 << 20);
    p.push(Event { device: 0, context: 1, ..Event::new(EventKind::ContextEnd) });
    let ledger = p.replay();
    assert_eq!((ledger.freed_with_context(), ledger.devices()[0].driver_allocation_bytes), (2, 512));
}

#[test]
fn the_drivers_account_is_compared_with_what_was_seen() {
    let mut p = Program::default();
    p.driver(EventKind::Alloc, MemoryClass::Linear, BASE, CHUNK);
    p.driver(EventKind::Alloc, MemoryClass::Async, 2 * BASE, 4096);
    p.push(Event { address: 4096, size: CHUNK, device: 0, ..Event::new(EventKind::PoolTotals) });
    let total = 80 << 30;
    p.push(Event { address: total - 3 * CHUNK, size: total, device: 0, ..Event::new(EventKind::MemInfo) });
    let ledger = p.replay();
    let d = &ledger.devices()[0];
    assert_eq!((d.unattributed_bytes, d.total_bytes, d.reserved_bytes()), (Some(CHUNK), total, CHUNK));
}

#[test]
fn the_judged_moment_knows_every_device_and_the_peak_of_the_run() {
    let mut p = Program::default();
    p.driver(EventKind::Alloc, MemoryClass::Linear, BASE, 4 * CHUNK);
    p.driver(EventKind::Free, MemoryClass::Linear, BASE, 0);
    p.driver(EventKind::Alloc, MemoryClass::Linear, BASE, CHUNK);
    p.step();
    p.step();
    let late = Event { device: 1, class: MemoryClass::Linear as u8, ..Event::new(EventKind::Alloc) };
    p.push(Event { address: BASE + 8 * CHUNK, size: 2 * CHUNK, ..late });
    let devices = p.replay().judged_devices();
    let told: Vec<_> = devices.iter().map(|d| (d.device, d.driver_bytes, d.peak_bytes)).collect();
    assert_eq!(told, [(0, CHUNK, 4 * CHUNK), (1, 0, 2 * CHUNK)]);
}

#[test]
fn a_free_may_turn_out_to_have_failed_much_later() {
    let mut p = Program::default();
    p.driver(EventKind::Alloc, MemoryClass::Linear, BASE, 4096);
    p.driver(EventKind::Free, MemoryClass::Linear, BASE, 0);
    p.driver(EventKind::Free, MemoryClass::Linear, 77, 0); // of nothing
    p.driver(EventKind::FreeFailed, MemoryClass::Linear, BASE, 0);
    p.driver(EventKind::Free, MemoryClass::Linear, BASE, 0);
    // Its thread waits for its turn while the others go on.
    for i in 1..=10_000 {
        p.driver(EventKind::Alloc, MemoryClass::Linear, BASE + i * CHUNK, 512);
        p.driver(EventKind::Free, MemoryClass::Linear, BASE + i * CHUNK, 0);
    }
    p.driver(EventKind::FreeFailed, MemoryClass::Linear, BASE, 0);
    assert_eq!(bytes(&p).2, 4096);
    for i in 1..=20_000 {
        p.driver(EventKind::Alloc, MemoryClass::Linear, BASE + i * CHUNK, 512);
        p.driver(EventKind::Free, MemoryClass::Linear, BASE + i * CHUNK, 0);
    }
    p.driver(EventKind::FreeFailed, MemoryClass::Linear, 77, 0);
    assert_eq!(p.replay().unknown_frees().iter().sum::<u64>(), 0);
}

#[test]
fn an_address_may_come_back_before_the_end_of_its_context_was_noted() {
    let mut p = Program::default();
    let alloc = |address, context| {
        let of = Event { address, size: 512, class: 1, device: 0, ..Event::new(EventKind::Alloc) };
        Event { context, ..of }
    };
    p.push(alloc(BASE, 1));
    p.push(alloc(BASE + 4096, 1));
    p.push(alloc(BASE, 2)); // the thread that destroyed context 1 has not come to say so
    assert_eq!(p.replay().missed_frees(), 1);
    p.push(Event { context: 1, ..Event::new(EventKind::ContextEnd) });
    let ledger = p.replay();
    assert_eq!((ledger.missed_frees(), ledger.freed_with_context(), bytes(&p).2), (0, 2, 512));
    // Nothing is taken back twice.
    p.push(alloc(BASE, 2));
    p.push(Event { context: 1, ..Event::new(EventKind::ContextEnd) });
    assert_eq!(p.replay().missed_frees(), 1);
}
