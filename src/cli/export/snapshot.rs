//! A memory snapshot as PyTorch pickles it, for its own viewer: `python -m torch.cuda._memory_viz
//! trace_plot|segment_plot` and pytorch.org/memory_viz. It has the segments with their blocks at the judged
//! moment, and the trace of the events that the recording holds. A driver allocation that no caching
//! allocator cuts up is written as a segment with one block.

use std::collections::HashMap;
use std::io::{self, Write};

use super::Input;
use super::input::device;
use super::pickle::{Memo, Pickle};
use super::range::EventRange;
use super::timeline::{Timeline, TraceEntry};
use leaktrace_core::ledger::{Layer, Ledger};
use leaktrace_core::symbols::{FrameKind, NamedFrame, Names};

/// A segment of this size or more belongs to the large pool of PyTorch's allocator.
const LARGE: u64 = 10 << 20;

/// Writes the snapshot of one recording, with its last `events` events.
pub fn write(input: &Input, events: u64, out: impl Write) -> io::Result<()> {
    let range = EventRange::new(input);
    let judged = range.judged.unwrap_or(0);
    let mut then = range.base.clone();
    range.events().take_while(|p| p.event.seq <= judged).for_each(|p| then.apply(&p.event));
    let mut snapshot = Snapshot {
        pickle: Pickle::new(out)?,
        input,
        names: input.names(),
        then: &then,
        texts: HashMap::new(),
        stacks: HashMap::new(),
    };
    snapshot.pickle.dict()?;
    snapshot.shared("segments")?;
    snapshot.segments()?;
    snapshot.shared("device_traces")?;
    snapshot.traces(&range, judged, events)?;
    snapshot.shared("allocator_settings")?;
    snapshot.pickle.dict()?;
    snapshot.pickle.end_dict()?;
    snapshot.shared("external_annotations")?;
    snapshot.pickle.list()?;
    snapshot.pickle.end_list()?;
    snapshot.pickle.end_dict()?;
    snapshot.pickle.finish()
}

/// A segment with its blocks, in the order of their addresses.
struct Segment {
    start: u64,
    end: u64,
    site: u32,
    mapped: bool,
    blocks: Vec<(u64, u64, u32)>,
}

struct Snapshot<'a, W: Write> {
    pickle: Pickle<W>,
    input: &'a Input,
    names: Names<'a>,
    /// The ledger at the judged moment.
    then: &'a Ledger,
    texts: HashMap<String, Memo>,
    stacks: HashMap<u32, Memo>,
}

impl<W: Write> Snapshot<'_, W> {
    fn shared(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.texts.get(text) {
            return self.pickle.again(memo);
        }
        self.pickle.text(text)?;
        let memo = self.pickle.remember()?;
        self.texts.insert(text.to_owned(), memo);
        Ok(())
    }

    fn int(&mut self, key: &str, value: i64) -> io::Result<()> {
        self.shared(key)?;
        self.pickle.int(value)
    }

    fn word(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.shared(key)?;
        self.pickle.word(value)
    }

    fn text(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.shared(key)?;
        self.shared(value)
    }

    fn frames(&mut self, stack: u32) -> io::Result<()> {
        self.shared("frames")?;
        if let Some(&memo) = self.stacks.get(&stack) {
            return self.pickle.again(memo);
        }
        let frames = self.names.frames(stack);
        self.pickle.list()?;
        for frame in &frames {
            self.frame(frame)?;
        }
        self.pickle.end_list()?;
        let memo = self.pickle.remember()?;
        self.stacks.insert(stack, memo);
        Ok(())
    }

    fn frame(&mut self, frame: &NamedFrame) -> io::Result<()> {
        let file = match frame.kind {
            FrameKind::Autograd => "autograd",
            FrameKind::Operation => "operation",
            _ if frame.file.is_empty() => "??",
            _ => frame.file.as_str(),
        };
        self.pickle.dict()?;
        self.text("filename", file)?;
        self.text("name", &frame.function)?;
        self.int("line", frame.line.map_or(0, i64::from))?;
        self.pickle.end_dict()
    }

    fn stack_of(&self, site: u32) -> u32 {
        self.then.site(site).map_or(0, |s| s.stack)
    }

    fn segments(&mut self) -> io::Result<()> {
        self.pickle.list()?;
        for segment in segments(self.then) {
            self.segment(&segment)?;
        }
        self.pickle.end_list()
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        let total = segment.end.saturating_sub(segment.start);
        let allocated = segment.blocks.iter().fold(0u64, |sum, b| sum.wrapping_add(b.1));
        let number = self.then.site(segment.site).and_then(|s| device(s.device)).unwrap_or(0);
        self.pickle.dict()?;
        self.int("device", i64::from(number))?;
        self.word("address", segment.start)?;
        self.word("total_size", total)?;
        for figure in ["allocated_size", "active_size", "requested_size"] {
            self.word(figure, allocated)?;
        }
        self.int("stream", 0)?;
        self.text("segment_type", if total >= LARGE { "large" } else { "small" })?;
        self.shared("segment_pool_id")?;
        self.pickle.int(0)?;
        self.pickle.int(0)?;
        self.pickle.pair()?;
        self.shared("is_expandable")?;
        self.pickle.bool(segment.mapped)?;
        self.frames(self.stack_of(segment.site))?;
        self.shared("blocks")?;
        self.pickle.list()?;
        let mut at = segment.start;
        for &(address, bytes, site) in &segment.blocks {
            self.gap(at, address)?;
            self.block(address, bytes, Some(site))?;
            at = address.saturating_add(bytes);
        }
        self.gap(at, segment.end)?;
        self.pickle.end_list()?;
        self.pickle.end_dict()
    }

    fn gap(&mut self, from: u64, to: u64) -> io::Result<()> {
        if to > from { self.block(from, to - from, None) } else { Ok(()) }
    }

    fn block(&mut self, address: u64, bytes: u64, site: Option<u32>) -> io::Result<()> {
        self.pickle.dict()?;
        self.word("address", address)?;
        self.word("size", bytes)?;
        self.word("requested_size", if site.is_some() { bytes } else { 0 })?;
        self.text("state", if site.is_some() { "active_allocated" } else { "inactive" })?;
        self.frames(site.map_or(0, |site| self.stack_of(site)))?;
        self.pickle.end_dict()
    }

    /// Writes a list of trace entries for each device.
    fn traces(&mut self, range: &EventRange<'_>, judged: u64, events: u64) -> io::Result<()> {
        let numbers = self.then.sites().filter_map(|(_, s)| device(s.device));
        let devices = numbers.max().map_or(0, |last| u32::from(last) + 1);
        let skipped = range.count.saturating_sub(events);
        self.pickle.list()?;
        for number in 0..devices as u8 {
            self.pickle.list()?;
            let mut timeline = Timeline::new(range, judged, self.then);
            let (mut entries, mut last) = (Vec::new(), 0);
            for (n, p) in (0u64..).zip(range.events().take_while(|p| p.event.seq <= judged)) {
                last = p.at_ns;
                timeline.apply(&p.event, &mut entries);
                for entry in entries.drain(..).filter(|e| n >= skipped && e.device == number) {
                    self.entry(p.at_ns, &entry)?;
                }
            }
            timeline.finish(self.then, &mut entries);
            for entry in entries.drain(..).filter(|e| e.device == number) {
                self.entry(last, &entry)?;
            }
            self.pickle.end_list()?;
        }
        self.pickle.end_list()
    }

    fn entry(&mut self, at_ns: u64, entry: &TraceEntry) -> io::Result<()> {
        self.pickle.dict()?;
        self.text("action", entry.action)?;
        if entry.action == "oom" {
            self.int("device_free", 0)?;
        } else {
            self.word("addr", entry.address)?;
        }
        self.word("size", entry.bytes)?;
        self.int("stream", 0)?;
        self.word("time_us", (self.input.recording.began_ns / 1000).saturating_add(at_ns / 1000))?;
        self.frames(entry.stack)?;
        self.pickle.end_dict()
    }
}

/// Returns the segments, and the driver allocations as segments, with their blocks, by address.
fn segments(then: &Ledger) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for s in then.live_segments() {
        let of = |site| then.site(site).map(|s| s.device);
        match segments.last_mut() {
            // Pieces mapped next to each other are one segment: a block may span them.
            Some(last) if s.mapped && last.mapped && last.end == s.start && of(last.site) == of(s.site) => {
                last.end = s.end;
            }
            _ => segments.push(Segment {
                start: s.start,
                end: s.end,
                site: s.site,
                mapped: s.mapped,
                blocks: vec![],
            }),
        }
    }
    let mut alone = Vec::new();
    let mut at = 0;
    for b in then.live_blocks() {
        while segments.get(at).is_some_and(|r| r.end <= b.address) {
            at += 1;
        }
        let end = b.address.saturating_add(b.bytes);
        match segments.get_mut(at).filter(|r| r.start <= b.address && end <= r.end) {
            Some(segment) => segment.blocks.push((b.address, b.bytes, b.site)),
            None => alone.push(b),
        }
    }
    let of_device = |site| then.site(site).is_some_and(|s| s.layer == Layer::Driver);
    alone.extend(then.live_driver_allocations().into_iter().filter(|o| of_device(o.site)));
    segments.extend(alone.into_iter().map(|b| Segment {
        start: b.address,
        end: b.address.saturating_add(b.bytes),
        site: b.site,
        mapped: false,
        blocks: vec![(b.address, b.bytes, b.site)],
    }));
    segments.sort_by_key(|r| r.start);
    segments
}
