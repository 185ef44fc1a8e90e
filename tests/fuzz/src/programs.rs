//! Recordings of programs that never ran: the shapes that reach every part of the ledger and the report.

use crate::mutation::Random;
use crate::recording_bytes::RecordingBytes;
use leaktrace_core::format::entry::{Frame, LineTable, TableEntry};
use leaktrace_core::format::event::{Event, EventKind, NO_DEVICE, RECORD};
use leaktrace_core::ledger::Ledger;

/// Different recordings.
pub const SYNTHETIC: u64 = 48;

/// The recording of this number, below [`SYNTHETIC`]. Every one has tables and events, every third a checkpoint over half
/// of them.
pub fn synthetic(number: u64) -> Vec<u8> {
    let mut r = Random::new(number);
    let mut events = match number % 6 {
        0 | 1 => noise(&mut r, 400),
        2 => training(&mut r, 40),
        3 => handles(&mut r, 60),
        4 => graphs(&mut r, 40),
        _ => running_out(&mut r),
    };
    for (seq, e) in (1..).zip(&mut events) {
        e.seq = seq;
    }
    let mut recording = RecordingBytes::new();
    recording.tables(&tables(&mut r));
    let mut rest = &events[..];
    if number.is_multiple_of(3) {
        let (covered, after) = events.split_at(events.len() / 2);
        let mut ledger = Ledger::default();
        covered.iter().for_each(|e| ledger.apply(e));
        recording.checkpoint(&postcard::to_stdvec(&ledger).unwrap_or_default());
        rest = after;
    }
    let parts = 1 + r.below(2) as usize;
    for part in rest.chunks(rest.len().div_ceil(parts).max(1)) {
        let payload: Vec<u8> = part.iter().flat_map(|e| e.pack()).flat_map(u64::to_le_bytes).collect();
        debug_assert!(payload.len() == part.len() * RECORD);
        recording.events(&payload, r.below(2) == 0);
    }
    recording.bytes
}

fn tables(r: &mut Random) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut add = |entry: TableEntry<'_>| {
        if let Ok(body) = postcard::to_stdvec(&entry) {
            RecordingBytes::entry(&mut payload, &body);
        }
    };
    for (key, value) in [
        ("argv", "python\0/home/u/train.py"),
        ("cwd", "/home/u"),
        ("host", "box"),
        ("rank", "3"),
        ("exe", "/usr/bin/python3"),
        ("python", "3.11"),
        ("python_stdlib", "/usr/lib/python3.11"),
    ] {
        add(TableEntry::Meta { key, value });
    }
    for id in 1..8 {
        add(TableEntry::Symbol { id, name: "cuMemAlloc_v2" });
    }
    let lines: Vec<u8> = (0..40).map(|_| r.below(256) as u8).collect();
    for id in 1..8 {
        let encoding = [LineTable::Lnotab, LineTable::Pairs, LineTable::Locations][id as usize % 3];
        let file = ["/home/u/train.py", "/v/lib/python3.11/site-packages/torch/nn/x.py"][id as usize % 2];
        add(TableEntry::Code { id, file, name: "step", first_line: 7 * id as i32, encoding, lines: &lines });
    }
    for id in 1..4 {
        let start = u64::from(id) << 30;
        let (build_id, path) = (&[1, 2, 3][..], "/usr/lib/libcudart.so.12");
        add(TableEntry::Module { id, start, end: start + 4096, bias: start, build_id, path });
    }
    for id in 1..8 {
        let python = r.below(5) as u32;
        let frames: Vec<u8> = (0..python + r.below(4) as u32)
            .map(|n| match n < python {
                true => Frame::Python {
                    code: 1 + r.below(7) as u32,
                    offset: 2 * r.below(20) as u32,
                    entry: n % 3 == 2,
                },
                false if r.below(4) == 0 => Frame::Truncated,
                false => Frame::Native { module: 1 + r.below(3) as u32, offset: r.below(4096) as u32 },
            })
            .flat_map(|f| f.pack().to_le_bytes())
            .collect();
        add(TableEntry::Stack { id, python, frames: &frames });
    }
    add(TableEntry::Label { id: 1, text: "epoch" });
    add(TableEntry::Note { text: "/x/odd.so was opened with its own scope first" });
    for index in 0..2 {
        add(TableEntry::Device { index, name: "GPU", total_bytes: 80 << 30 });
    }
    payload
}

/// Anything at all.
fn noise(r: &mut Random, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..count {
        let mut e = Event::new(EventKind::StepEnd);
        e.kind = r.below(28) as u8;
        e.class = r.below(13) as u8;
        e.device = [0, 0, 1, NO_DEVICE][r.below(4) as usize];
        (e.address, e.size) = (r.below(40) << 12, r.below(6) << 11);
        (e.stack, e.context) = (r.below(9) as u32, r.below(3) as u8);
        e.entry_point = r.below(9) as u16;
        if e.kind == EventKind::Exit as u8 && r.below(100) != 0 {
            e.kind = EventKind::BlockAlloc as u8;
        }
        events.push(e);
        // The halves of a pair do follow each other, mostly.
        let second = match EventKind::from_code(e.kind) {
            Some(EventKind::Map) => EventKind::MapHandle,
            Some(EventKind::GraphNode) => EventKind::GraphExec,
            _ => continue,
        };
        if r.below(8) != 0 {
            events.push(Event { address: r.below(40) << 12, ..Event::new(second) });
        }
    }
    events
}

fn boundary(step: u64, r: &mut Random) -> Event {
    let context = u8::from(r.below(9) == 0);
    Event {
        address: step * 1_000_000,
        class: 1 + r.below(6) as u8,
        context,
        ..Event::new(EventKind::StepEnd)
    }
}

/// Steps that leak in several ways, beside segments, accounts and marks.
fn training(r: &mut Random, steps: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let on = |kind| Event { device: 0, ..Event::new(kind) };
    for step in 1..=steps {
        let base = step << 24;
        events.push(Event {
            address: base,
            size: 1 << 21,
            class: 1,
            stack: 7,
            entry_point: 1,
            ..on(EventKind::Alloc)
        });
        for i in 0..1 + r.below(6) {
            let stack = r.below(8) as u32;
            events.push(Event {
                address: base + (i << 9),
                size: 512 << r.below(4),
                stack,
                ..on(EventKind::BlockAlloc)
            });
            if r.below(3) != 0 {
                events.push(Event { address: base + (i << 9), ..on(EventKind::BlockFree) });
            }
        }
        events.push(Event {
            address: r.below(1 << 20),
            size: 1 << 21,
            stack: 1,
            ..on(EventKind::AllocatorTotals)
        });
        events.push(Event { address: 1 << 20, size: 1 << 22, ..on(EventKind::PoolTotals) });
        events.push(Event { address: (79 << 30) - (step << 25), size: 80 << 30, ..on(EventKind::MemInfo) });
        if r.below(6) == 0 {
            events.push(Event { address: step, stack: 1, ..Event::new(EventKind::Annotation) });
        }
        events.push(boundary(step, r));
    }
    events.push(Event { address: steps * 1_000_000, ..Event::new(EventKind::Exit) });
    events
}

/// Handles, references, mappings, address ranges, blocks inside them.
fn handles(r: &mut Random, rounds: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let of = |kind, class, address, size| Event { address, size, class, device: 0, ..Event::new(kind) };
    for round in 1..=rounds {
        let (range, handle) = (round << 30, 1 + r.below(9));
        events.push(of(EventKind::Reserve, 0, range, 1 << 28));
        events.push(of(EventKind::Alloc, [6, 7, 8][r.below(3) as usize], handle, 2 << 20));
        for part in 0..r.below(4) {
            events.push(of(EventKind::Map, 0, range + (part << 21), 2 << 20));
            events.push(of(EventKind::MapHandle, 0, handle, 0));
        }
        if r.below(2) == 0 {
            events.push(Event { stack: 3, ..of(EventKind::BlockAlloc, 0, range + 512, 1024) });
        }
        events.push(of(EventKind::Retain, 0, 1 + r.below(9), 0));
        events.push(of(EventKind::Free, 6, 1 + r.below(9), 0));
        if r.below(4) == 0 {
            let last = events[events.len() - 1];
            events.push(Event { kind: EventKind::FreeFailed as u8, ..last });
        }
        if r.below(2) == 0 {
            events.push(of(EventKind::Unmap, 0, range, 1 << 28));
            events.push(of(EventKind::Unreserve, 0, range, 1 << 28));
        }
        if r.below(7) == 0 {
            events.push(boundary(round, r));
        }
    }
    events
}

fn graphs(r: &mut Random, rounds: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for round in 1..=rounds {
        let exec = 1 + r.below(5);
        for node in 0..r.below(4) {
            let address = (round << 20) + (node << 12);
            events.push(Event {
                address,
                size: 4096,
                stack: 2,
                device: 0,
                entry_point: 2,
                ..Event::new(EventKind::GraphAllocNode)
            });
            let context = r.below(2) as u8;
            events.push(Event {
                address,
                size: 4096,
                device: 0,
                context,
                ..Event::new(EventKind::GraphNode)
            });
            events.push(Event { address: exec, ..Event::new(EventKind::GraphExec) });
        }
        for _ in 0..r.below(3) {
            events.push(Event {
                address: exec,
                stack: 4,
                context: 1,
                device: 0,
                ..Event::new(EventKind::GraphLaunch)
            });
        }
        if r.below(5) == 0 {
            events.push(Event { address: exec, ..Event::new(EventKind::GraphEnd) });
        }
        if r.below(9) == 0 {
            events.push(Event { device: 0, context: 1, ..Event::new(EventKind::ContextEnd) });
        }
        events.push(boundary(round, r));
    }
    events
}

/// Many sites, many devices, memory that runs out again and again, calls that with untracked memory use.
fn running_out(r: &mut Random) -> Vec<Event> {
    let mut events = Vec::new();
    for i in 0..300 {
        let device = r.below(70) as u8;
        events.push(Event {
            address: i << 12,
            size: 512 * i,
            device,
            stack: i as u32 % 90,
            ..Event::new(EventKind::BlockAlloc)
        });
        match r.below(12) {
            0 => events.push(Event {
                address: 9,
                size: 1 << 40,
                device,
                stack: 4,
                ..Event::new(EventKind::OutOfMemory)
            }),
            1 => events.push(Event {
                size: i,
                entry_point: r.below(40) as u16,
                ..Event::new(EventKind::UntrackedCall)
            }),
            2 => events.push(boundary(i, r)),
            _ => {}
        }
    }
    events
}
