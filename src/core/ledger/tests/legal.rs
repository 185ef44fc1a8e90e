//! Random programs that do only what the driver allows, over every family, compared with the [`Oracle`].

use super::oracle::{Of, Oracle, Sums};
use super::*;

const CHUNK: u64 = 2 << 20;

/// Writes a legal program; the oracle beside it knows what is legal.
struct Legal {
    p: Program,
    oracle: Oracle,
    r: Random,
    next: u64,
    free_addresses: Vec<u64>,
}

impl Legal {
    fn new(seed: u64) -> Legal {
        let oracle = Oracle::default();
        Legal { p: Program::default(), oracle, r: Random(seed), next: 1 << 40, free_addresses: Vec::new() }
    }

    fn say(&mut self, kind: EventKind, e: Event) {
        self.p.push(Event { kind: kind as u8, ..e });
        self.oracle.apply(&self.p.events[self.p.events.len() - 1]);
    }

    /// Returns an event of a random site, device and context.
    fn event(&mut self, address: u64, size: u64) -> Event {
        let (stack, entry_point) = (1 + self.r.below(6) as u32, self.r.below(4) as u16);
        let (device, context) = (self.r.below(2) as u8, self.r.below(4) as u8);
        Event { address, size, stack, entry_point, device, context, ..Event::new(EventKind::Annotation) }
    }

    /// Returns a free address, often one that was used before.
    fn address(&mut self) -> u64 {
        if self.r.below(2) == 0 && !self.free_addresses.is_empty() {
            let at = self.r.below(self.free_addresses.len() as u64) as usize;
            return self.free_addresses.swap_remove(at);
        }
        self.next += 4 * CHUNK;
        self.next
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.r.below(all.len() as u64) as usize])
    }

    /// Picks something alive that a call can name.
    fn living(&mut self, of: Of) -> Option<usize> {
        let things = self.oracle.things.iter().enumerate();
        let all: Vec<usize> =
            things.filter(|(_, t)| t.alive && t.of == of && t.refs > 0).map(|(i, _)| i).collect();
        self.one_of(&all)
    }

    fn step(&mut self) {
        match self.r.below(40) {
            0..=7 => self.block(),
            8..=11 => self.block_free(),
            12..=16 => self.pointer(),
            17..=20 => self.pointer_free(),
            21..=23 => self.handle(),
            24 | 25 => self.release(),
            26 => self.retain(),
            27 | 28 => self.range(),
            29 | 30 => self.map(),
            31 => self.unmap(),
            32 => self.graph(),
            33 | 34 => self.launch(),
            35 if self.r.below(4) == 0 => {
                let context = 1 + self.r.below(3) as u8;
                self.say(EventKind::ContextEnd, Event { context, ..Event::new(EventKind::ContextEnd) });
            }
            36 | 37 => {
                let boundary = Event::new(EventKind::StepEnd);
                let context = u8::from(self.r.below(4) == 0);
                self.say(EventKind::StepEnd, Event { class: 1, context, ..boundary });
            }
            _ => self.account(),
        }
    }

    /// Adds an event that changes nothing of what is alive.
    fn account(&mut self) {
        let kinds = [
            EventKind::AllocatorTotals,
            EventKind::PoolTotals,
            EventKind::MemInfo,
            EventKind::OutOfMemory,
            EventKind::Annotation,
            EventKind::UntrackedCall,
        ];
        let kind = kinds[self.r.below(6) as usize];
        let (a, s) = (self.r.below(1 << 30), self.r.below(1 << 30));
        let e = self.event(a, s);
        self.say(kind, e);
    }

    /// Allocates a block, in memory of the driver's or where none was seen.
    fn block(&mut self) {
        let mut places: Vec<u64> =
            self.oracle.things.iter().filter(|t| t.alive && t.of == Of::Pointer).map(|t| t.number).collect();
        places.extend(self.oracle.mappings.iter().map(|m| m.0));
        places.push(1 << 50);
        let address = self.one_of(&places).expect("some") + 512 * self.r.below(8);
        if self.oracle.named(Of::Block, address).is_none() {
            let size = 512 * (1 + self.r.below(4));
            if self.r.below(8) == 0 {
                self.say(EventKind::Segment, Event { address, ..Event::new(EventKind::Segment) });
            }
            let e = self.event(address, size);
            self.say(EventKind::BlockAlloc, Event { entry_point: 0, context: 0, ..e });
        }
    }

    fn block_free(&mut self) {
        if let Some(block) = self.living(Of::Block) {
            let address = self.oracle.things[block].number;
            self.say(EventKind::BlockFree, Event { address, ..Event::new(EventKind::BlockFree) });
        }
    }

    fn pointer(&mut self) {
        use MemoryClass::*;
        let class = [Linear, Pitched, Managed, Host, Async, Registered, External][self.r.below(7) as usize];
        let foreign = self.oracle.things.iter().filter(|t| t.alive && t.class == Some(External));
        let had: Vec<u64> = foreign.map(|t| t.number).collect();
        let again = class == External && self.r.below(2) == 0 && !had.is_empty();
        let address = if again { self.one_of(&had).expect("some") } else { self.address() };
        let size = 1 + self.r.below(CHUNK);
        let e = self.event(address, size);
        let device = if class.is_host() { NO_DEVICE } else { e.device };
        self.say(EventKind::Alloc, Event { class: class as u8, device, ..e });
    }

    fn pointer_free(&mut self) {
        let Some(thing) = self.living(Of::Pointer) else { return };
        let t = &self.oracle.things[thing];
        let (address, class) = (t.number, t.class.expect("has one") as u8);
        self.freed(Event { address, class, ..Event::new(EventKind::Free) });
        if !self.oracle.things[thing].alive && self.oracle.things[thing].class != Some(MemoryClass::Graph) {
            self.free_addresses.push(address);
        }
    }

    /// Frees; now and then the free fails, which is recorded after other events.
    fn freed(&mut self, e: Event) {
        self.say(EventKind::Free, e);
        if self.r.below(8) == 0 {
            for _ in 0..self.r.below(5) {
                self.block_free();
            }
            self.say(EventKind::FreeFailed, e);
        }
    }

    /// Returns a number without a reference; a handle that is only mapped may have had it.
    fn handle(&mut self) {
        use MemoryClass::*;
        let class = [Physical, Physical, Array, ExternalHandle][self.r.below(4) as usize];
        let number = 1 + self.r.below(12);
        let again = match self.oracle.named(Of::Handle, number) {
            Some(had) => {
                if self.oracle.things[had].class != Some(ExternalHandle) || class != ExternalHandle {
                    return;
                }
                true
            }
            None => false,
        };
        // An import of what is mapped only would be the same memory: no new handle.
        let of_it = self.oracle.things.iter().any(|t| t.alive && t.of == Of::Handle && t.number == number);
        if class == ExternalHandle && of_it && !again {
            return;
        }
        let e = self.event(number, CHUNK);
        self.say(EventKind::Alloc, Event { class: class as u8, ..e });
    }

    fn release(&mut self) {
        let Some(thing) = self.living(Of::Handle) else { return };
        let t = &self.oracle.things[thing];
        let (address, class) = (t.number, t.class.expect("has one") as u8);
        self.freed(Event { address, class, ..Event::new(EventKind::Free) });
    }

    /// Retains a handle, named by itself or by an address where it is mapped.
    fn retain(&mut self) {
        let number = 1 + self.r.below(12);
        // What a number stood for before it was given out again has no name any more.
        let latest = self.oracle.things.iter().rfind(|t| t.of == Of::Handle && t.number == number);
        if latest.is_some_and(|t| t.alive && t.class != Some(MemoryClass::Array)) {
            self.say(EventKind::Retain, Event { address: number, ..Event::new(EventKind::Retain) });
        }
    }

    fn range(&mut self) {
        let mapped = |r: &(u64, u64, bool)| self.oracle.mappings.iter().any(|m| r.0 <= m.0 && m.0 < r.1);
        let idle = self.oracle.ranges.iter().copied().filter(|r| !mapped(r)).collect::<Vec<_>>();
        match self.one_of(&idle) {
            Some((start, end, _)) if self.r.below(2) == 0 => {
                self.say(
                    EventKind::Unreserve,
                    Event { address: start, size: end - start, ..Event::new(EventKind::Unreserve) },
                );
                self.free_addresses.push(start);
            }
            _ => {
                let address = self.address();
                self.say(
                    EventKind::Reserve,
                    Event { address, size: 4 * CHUNK, ..Event::new(EventKind::Reserve) },
                );
            }
        }
    }

    fn map(&mut self) {
        let Some(thing) = self.living(Of::Handle) else { return };
        let Some((start, ..)) = self.one_of(&self.oracle.ranges.clone()) else { return };
        let (t, address) = (self.oracle.things[thing].clone(), start + CHUNK * self.r.below(4));
        if t.class != Some(MemoryClass::Array) && self.oracle.mappings.iter().all(|m| m.0 != address) {
            self.say(EventKind::Map, Event { address, size: CHUNK, ..Event::new(EventKind::Map) });
            self.say(EventKind::MapHandle, Event { address: t.number, ..Event::new(EventKind::MapHandle) });
        }
    }

    fn unmap(&mut self) {
        let Some((start, ..)) = self.one_of(&self.oracle.mappings.clone()) else { return };
        let size = CHUNK * (1 + self.r.below(3));
        self.say(EventKind::Unmap, Event { address: start, size, ..Event::new(EventKind::Unmap) });
    }

    /// Makes a graph executable, or ends one.
    fn graph(&mut self) {
        let exec = 1 + self.r.below(5);
        if self.oracle.nodes.iter().any(|n| n.exec == exec) {
            if self.r.below(2) == 0 {
                self.say(EventKind::GraphEnd, Event { address: exec, ..Event::new(EventKind::GraphEnd) });
            }
            return;
        }
        let mut nodes = Vec::new();
        for _ in 0..1 + self.r.below(3) {
            self.next += 4 * CHUNK;
            let e = self.event(self.next, CHUNK);
            if self.r.below(4) != 0 {
                self.say(EventKind::GraphAllocNode, e);
            }
            nodes.push(Event { context: 0, ..e });
            if self.r.below(3) == 0 {
                nodes.push(Event { context: 1, ..e });
            }
        }
        // It may free what another one allocates.
        let others: Vec<u64> = self.oracle.nodes.iter().filter(|n| !n.frees).map(|n| n.address).collect();
        if let Some(address) = self.one_of(&others) {
            nodes.push(Event { address, context: 1, ..Event::new(EventKind::GraphNode) });
        }
        for node in nodes {
            self.say(EventKind::GraphNode, node);
            self.say(EventKind::GraphExec, Event { address: exec, ..Event::new(EventKind::GraphExec) });
        }
    }

    fn launch(&mut self) {
        let exec = 1 + self.r.below(5);
        let of_it: Vec<_> = self.oracle.nodes.iter().filter(|n| n.exec == exec).collect();
        let inside = |address| of_it.iter().any(|n| !n.frees && n.address == address);
        let there = |address| self.oracle.named(Of::Pointer, address).is_some();
        if of_it.iter().all(|n| !n.frees || inside(n.address) || there(n.address)) {
            let e = self.event(exec, 0);
            self.say(EventKind::GraphLaunch, e);
        }
    }
}

/// Asserts that the two ledgers agree.
#[track_caller]
fn compare(ledger: &Ledger, oracle: &Oracle, whole: bool) {
    let mut totals = BTreeMap::new();
    for d in ledger.devices() {
        for (layer, segment, bytes) in [
            (Layer::Block, false, d.block_bytes),
            (Layer::Driver, false, d.driver_allocation_bytes),
            (Layer::Driver, true, d.segment_bytes),
            (Layer::Host, false, d.host_bytes),
            (Layer::External, false, d.external_bytes),
        ] {
            if bytes > 0 {
                totals.insert((d.device, layer, segment), bytes);
            }
        }
    }
    assert_eq!(totals, oracle.totals());
    assert_eq!((ledger.missed_frees(), ledger.freed_with_context()), (0, oracle.freed_with_context));
    assert_eq!(ledger.unknown_frees().iter().sum::<u64>(), 0);
    assert_eq!((ledger.lost_events(), ledger.unknown_events()), (0, 0));
    assert_eq!((ledger.step_count(), ledger.exited()), (oracle.completed, oracle.exited));
    let key = |site| {
        let s = ledger.site(site).expect("is there");
        (s.stack, s.layer, s.device, s.entry_point)
    };
    if oracle.completed > 0 {
        let mut told: Sums<_> = Sums::new();
        for (site, cohorts) in ledger.cohorts() {
            told.extend(cohorts.iter().map(|c| ((key(site), c.birth), (c.blocks, c.bytes))));
        }
        assert_eq!(told, oracle.cohorts());
    }
    let steps = if whole { 1 } else { oracle.completed.max(1) };
    for step in steps..=oracle.completed {
        let held = retained(ledger, Some(step));
        let told: Sums<_> = held.iter().map(|r| (key(r.site), (r.blocks, r.bytes))).collect();
        assert_eq!(told, oracle.retained[&step], "at step {step} of {}", oracle.completed);
    }
}

/// Makes a program of so many events; `each` is called after every step of it, with the events it made and the
/// oracle there.
fn written(seed: u64, events: usize, mut each: impl FnMut(&[Event], &Oracle)) -> Legal {
    let mut legal = Legal::new(seed);
    while legal.p.events.len() < events {
        let done = legal.p.events.len();
        if seed.is_multiple_of(4) && done > events * 9 / 10 && !legal.oracle.exited {
            legal.say(EventKind::Exit, Event::new(EventKind::Exit));
        }
        legal.step();
        each(&legal.p.events[done..], &legal.oracle);
    }
    legal
}

#[test]
fn every_prefix_of_a_legal_program_is_told_as_by_the_oracle() {
    for seed in 1..=40 {
        let mut ledger = Ledger::default();
        let legal = written(seed, 1200, |events, oracle| {
            events.iter().for_each(|e| ledger.apply(e));
            compare(&ledger, oracle, false);
        });
        compare(&ledger, &legal.oracle, true);
        assert!(legal.oracle.completed > 20 && legal.oracle.freed_with_context > 0, "too little was tested");
    }
}

#[test]
fn what_was_compacted_and_what_is_replayed_say_the_same() {
    for seed in 50..80 {
        let legal = written(seed, 1500, |_, _| {});
        let straight = legal.p.replay();
        // The process drains and writes checkpoints where it happens to; killed at any time, the reader goes
        // on from the last one with all that still stands in the file, part of which the checkpoint covers
        // already.
        let mut process = Ledger::default();
        let (mut r, mut state, mut kept) = (Random(seed), None, 0);
        for (i, e) in legal.p.events.iter().enumerate() {
            process.apply(e);
            if r.below(60) == 0 {
                state = Some(postcard::to_stdvec(&process).expect("serialises"));
                kept = i.saturating_sub(r.below(100) as usize);
            }
            if r.below(40) == 0 {
                let reader = Ledger::replay(state.as_deref(), legal.p.events[kept..=i].iter().copied())
                    .expect("is one");
                assert!(reader == process, "seed {seed}, killed after {i} events");
            }
        }
        assert!(process == straight);
        compare(&process, &legal.oracle, true);
    }
}
