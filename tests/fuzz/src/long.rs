//! A long recording: so many events of so many sites over so many steps, as a run leaves that keeps all its events.

use crate::mutation::Random;
use crate::recording_bytes::RecordingBytes;
use leaktrace_core::format::entry::{Frame, LineTable, TableEntry};
use leaktrace_core::format::event::{Event, EventKind};

/// Frames of a stack.
const PYTHON: u32 = 20;
const NATIVE: u32 = 30;
const CODES: u64 = 400;
/// Of this many blocks of a step one lives into the next, …
const CARRIED: u64 = 20;
/// … and so many lines keep one of every step, or of every tenth.
const LEAKING: u64 = 4;

/// What it shall hold.
#[derive(Clone, Copy, Debug)]
pub struct Long {
    pub events: u64,
    pub sites: u64,
    pub steps: u64,
}

/// The bytes of such a recording.
pub fn long(of: Long) -> Vec<u8> {
    let mut r = Random::new(1);
    let mut recording = RecordingBytes::new();
    for part in stacks(&mut r, of.sites) {
        recording.tables(&part);
    }
    let (mut payload, mut seq) = (Vec::with_capacity(of.events as usize * 32), 0);
    let mut say = |e: Event| {
        seq += 1;
        payload.extend(Event { seq, ..e }.pack().into_iter().flat_map(u64::to_le_bytes));
    };
    let on = |kind| Event { device: 0, ..Event::new(kind) };
    let pairs = (of.events / of.steps / 2).max(2);
    let mut before: Vec<u64> = Vec::new();
    let mut next = 1u64 << 20;
    for step in 1..=of.steps {
        let mut block = |stack: u64, size: u64| {
            next += 1 << 12;
            say(Event { address: next, size, stack: stack as u32, ..on(EventKind::BlockAlloc) });
            next
        };
        let mut gone = Vec::new();
        for i in 0..pairs {
            // A step goes through a part of the lines; which one changes as the run goes on.
            let site = 1 + (i * 7 + step * of.sites / of.steps) % of.sites;
            gone.push(block(site, 512 << r.below(12)));
        }
        for leak in 0..LEAKING {
            if leak < 2 || step.is_multiple_of(10) {
                block(1 + leak, 512);
            }
        }
        let carried: Vec<u64> = gone.iter().copied().step_by(CARRIED as usize).collect();
        for address in before.drain(..).chain(gone.into_iter().filter(|a| !carried.contains(a))) {
            say(Event { address, ..on(EventKind::BlockFree) });
        }
        before = carried;
        say(Event { address: step * 1_000_000, class: 1, ..Event::new(EventKind::StepEnd) });
    }
    recording.events(&payload, true);
    recording.bytes
}

/// The tables, in payloads that fit a segment.
fn stacks(r: &mut Random, sites: u64) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut add = |entry: TableEntry<'_>| {
        let Ok(body) = postcard::to_stdvec(&entry) else { return };
        if parts.last().is_some_and(|p: &Vec<u8>| p.len() + body.len() > 100 << 10) {
            parts.push(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            RecordingBytes::entry(part, &body);
        }
    };
    for (key, value) in [("argv", "python\0/home/u/train.py"), ("cwd", "/home/u"), ("python", "3.11")] {
        add(TableEntry::Meta { key, value });
    }
    let lines: Vec<u8> = (0..40).flat_map(|_| [2, 1]).collect();
    for id in 1..=CODES as u32 {
        let file = match id % 4 {
            0 => format!("/home/u/file{id}.py"),
            _ => format!("/v/lib/python3.11/site-packages/torch/nn/file{id}.py"),
        };
        let name = format!("function{id}");
        add(TableEntry::Code {
            id,
            file: &file,
            name: &name,
            first_line: 7,
            encoding: LineTable::Pairs,
            lines: &lines,
        });
    }
    let (build_id, path) = (&[1, 2, 3][..], "/v/lib/libtorch_cuda.so");
    add(TableEntry::Module { id: 1, start: 1 << 30, end: 2 << 30, bias: 1 << 30, build_id, path });
    for id in 1..=sites as u32 {
        let python = (0..PYTHON).map(|_| Frame::Python {
            code: 1 + r.below(CODES) as u32,
            offset: 2 * r.below(30) as u32,
            entry: false,
        });
        let mut frames: Vec<u64> = python.map(Frame::pack).collect();
        frames
            .extend((0..NATIVE).map(|_| Frame::Native { module: 1, offset: r.below(1 << 28) as u32 }.pack()));
        let frames: Vec<u8> = frames.into_iter().flat_map(u64::to_le_bytes).collect();
        add(TableEntry::Stack { id, python: PYTHON, frames: &frames });
    }
    add(TableEntry::Device { index: 0, name: "GPU", total_bytes: 80 << 30 });
    parts
}
