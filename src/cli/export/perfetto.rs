//! A Perfetto trace: counters of each device, a slice for each step, and a slice with its stack for every
//! allocation among the events that the recording holds. Slices that overlap need tracks of their own: tracks
//! of one name are lanes that Perfetto draws as one. Written packet by packet.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::io::{self, Write};

use prost::Message;

use super::Input;
use super::input::{device, device_name};
use super::perfetto_proto::*;
use super::range::{EventRange, TimedEvent};
use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};
use leaktrace_core::ledger::{DeviceAt, Ledger, StepRecord};
use leaktrace_core::symbols::Names;

/// The names of annotations; the number of one is its index, from 1.
const ANNOTATIONS: [&str; 4] = ["bytes", "address", "step", "stack"];
const CATEGORIES: [&str; 3] = ["step", "block", "driver"];
const COUNTERS: [&str; 4] = ["live bytes", "reserved bytes", "driver bytes", "pinned bytes"];
/// The index of the counter of host memory.
const HOST: usize = 3;

/// A trace of all recordings.
pub struct Perfetto<W: Write> {
    out: W,
    /// The events of each recording that allocations are written of at most, the last ones.
    events: u64,
    processes: u32,
    pids: HashSet<i32>,
}

impl<W: Write> Perfetto<W> {
    pub fn new(out: W, events: u64) -> Perfetto<W> {
        Perfetto { out, events, processes: 0, pids: HashSet::new() }
    }

    pub fn add(&mut self, input: &Input) -> io::Result<()> {
        self.processes += 1;
        // Processes of several machines may have the same pid, and must not be drawn as one.
        let free = |pids: &HashSet<i32>, pid: i32| (pid..).find(|p| !pids.contains(p)).unwrap_or(pid);
        let pid = free(&self.pids, input.pid() as i32);
        self.pids.insert(pid);
        let mut process = Process {
            out: &mut self.out,
            sequence: self.processes,
            input,
            names: input.names(),
            base: u64::from(self.processes) << 40,
            tracks: 1,
            counters: BTreeMap::new(),
            lanes: BTreeMap::new(),
            alive: HashMap::new(),
            stacks: HashMap::new(),
            interned: 0,
        };
        process.begin(pid)?;
        process.steps(&input.ledger)?;
        process.allocations(self.events)
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The tracks of one name that no slice is on, lowest first.
#[derive(Default)]
struct Lanes {
    free: BinaryHeap<Reverse<u64>>,
}

/// The device and the layer of lanes.
type LanesKey = (u8, &'static str);

struct Process<'a, W: Write> {
    out: &'a mut W,
    sequence: u32,
    input: &'a Input,
    names: Names<'a>,
    /// The number that this process's tracks count from.
    base: u64,
    tracks: u64,
    /// By device and index in `COUNTERS`: the track, and the value written last.
    counters: BTreeMap<(u8, usize), (u64, i64)>,
    lanes: BTreeMap<LanesKey, Lanes>,
    /// The tracks of allocations that are alive.
    alive: HashMap<(AddressSpace, u64), (u64, LanesKey)>,
    /// By stack and entry point: the number under which the event's name and the stack are interned.
    stacks: HashMap<(u32, u16), u64>,
    interned: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum AddressSpace {
    Block,
    Pointer,
    Handle,
}

impl<W: Write> Process<'_, W> {
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let trusted_packet_sequence_id = Some(self.sequence);
        let packet = vec![TracePacket { trusted_packet_sequence_id, ..packet }];
        self.out.write_all(&Trace { packet }.encode_to_vec())
    }

    fn event(&mut self, at_ns: u64, event: TrackEvent) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(self.input.recording.began_ns.saturating_add(at_ns)),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<u64> {
        let uuid = self.base + self.tracks;
        self.tracks += 1;
        let parent_uuid = (uuid != self.process_track()).then_some(self.process_track());
        let track_descriptor = Some(TrackDescriptor { uuid: Some(uuid), parent_uuid, ..descriptor });
        self.packet(TracePacket { track_descriptor, ..TracePacket::default() })?;
        Ok(uuid)
    }

    fn process_track(&self) -> u64 {
        self.base + 1
    }

    fn begin(&mut self, pid: i32) -> io::Result<()> {
        let named = |names: &[&str]| names.iter().zip(1..).map(|(name, iid)| named(iid, *name)).collect();
        self.packet(TracePacket {
            sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: named(&CATEGORIES),
                debug_annotation_names: named(&ANNOTATIONS),
                ..InternedData::default()
            }),
            ..TracePacket::default()
        })?;
        let process_name = Some(format!("{} {}", self.input.program(), self.input.process()));
        let cmdline = self.input.argv().into_iter().map(str::to_owned).collect();
        let process = Some(ProcessDescriptor { pid: Some(pid), cmdline, process_name });
        self.track(TrackDescriptor { process, ..TrackDescriptor::default() })?;
        Ok(())
    }

    /// Writes the steps, and the counters of the devices at their ends.
    fn steps(&mut self, ledger: &Ledger) -> io::Result<()> {
        let track =
            self.track(TrackDescriptor { name: Some("steps".into()), ..TrackDescriptor::default() })?;
        let (mut before, mut began) = (0, 0);
        for record in ledger.steps() {
            self.step(track, before + 1, began, record)?;
            for d in &record.devices {
                self.device(record.at_ns, d)?;
            }
            (before, began) = (record.step, record.at_ns);
        }
        if ledger.steps().is_empty() {
            for d in ledger.judged_devices() {
                self.device(ledger.last_ns(), &d)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, track: u64, first: u32, began: u64, record: &StepRecord) -> io::Result<()> {
        // Old steps are merged to bound the size of the recording.
        let mut name = match record.step {
            last if last == first => format!("step {last}"),
            last => format!("steps {first} to {last}"),
        };
        if let Some(label) =
            self.input.recording.tables.labels.get(&record.label).filter(|_| record.label > 0)
        {
            name = format!("{name}: {label}");
        }
        let event = TrackEvent {
            category_iids: vec![1],
            r#type: Some(event_type::SLICE_BEGIN),
            name: Some(name),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        self.event(began, event)?;
        self.end(record.at_ns, track)
    }

    fn end(&mut self, at_ns: u64, track: u64) -> io::Result<()> {
        let (r#type, track_uuid) = (Some(event_type::SLICE_END), Some(track));
        self.event(at_ns, TrackEvent { r#type, track_uuid, ..TrackEvent::default() })
    }

    fn device(&mut self, at_ns: u64, d: &DeviceAt) -> io::Result<()> {
        if device(d.device).is_some() {
            for (counter, value) in [d.live_bytes(), d.reserved_bytes, d.driver_bytes].into_iter().enumerate()
            {
                self.counter(at_ns, d.device, counter, value)?;
            }
        }
        if d.host_bytes > 0 || self.counters.contains_key(&(d.device, HOST)) {
            self.counter(at_ns, d.device, HOST, d.host_bytes)?;
        }
        Ok(())
    }

    fn counter(&mut self, at_ns: u64, device: u8, counter: usize, value: u64) -> io::Result<()> {
        let value = value as i64;
        let track = match self.counters.get_mut(&(device, counter)) {
            Some((_, last)) if *last == value => return Ok(()),
            Some((track, last)) => {
                *last = value;
                *track
            }
            None => {
                let track = self.track(TrackDescriptor {
                    name: Some(format!("{} {}", device_name(device), COUNTERS[counter])),
                    counter: Some(CounterDescriptor { unit: Some(SIZE_BYTES) }),
                    ..TrackDescriptor::default()
                })?;
                self.counters.insert((device, counter), (track, value));
                track
            }
        };
        let (r#type, track_uuid) = (Some(event_type::COUNTER), Some(track));
        self.event(
            at_ns,
            TrackEvent { r#type, track_uuid, counter_value: Some(value), ..TrackEvent::default() },
        )
    }

    /// Writes the allocations among the last `most` events.
    fn allocations(&mut self, most: u64) -> io::Result<()> {
        let range = EventRange::new(self.input);
        let skipped = range.count.saturating_sub(most) as usize;
        for p in range.events().skip(skipped) {
            let e = &p.event;
            match EventKind::from_code(e.kind) {
                Some(EventKind::BlockAlloc) => self.allocated(&p, AddressSpace::Block, "blocks")?,
                Some(EventKind::BlockFree) => self.freed(p.at_ns, AddressSpace::Block, e.address)?,
                Some(EventKind::Alloc) => self.allocated(&p, space(e), driver_lanes(e))?,
                Some(EventKind::Free) => self.freed(p.at_ns, space(e), e.address)?,
                Some(EventKind::OutOfMemory) => self.out_of_memory(&p)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn allocated(&mut self, p: &TimedEvent, space: AddressSpace, lanes: &'static str) -> io::Result<()> {
        let e = &p.event;
        if space != AddressSpace::Block && e.address == 0 {
            return Ok(());
        }
        // The free of what was here before was not seen.
        self.freed(p.at_ns, space, e.address)?;
        let key = (e.device, lanes);
        let track = match self.lanes.entry(key).or_default().free.pop() {
            Some(Reverse(track)) => track,
            None => {
                let name = Some(format!("{} {lanes}", device_name(e.device)));
                self.track(TrackDescriptor { name, ..TrackDescriptor::default() })?
            }
        };
        self.alive.insert((space, e.address), (track, key));
        let category = if space == AddressSpace::Block { 2 } else { 3 };
        let event = self.track_event(p, track, event_type::SLICE_BEGIN, category)?;
        self.event(p.at_ns, event)
    }

    fn freed(&mut self, at_ns: u64, space: AddressSpace, address: u64) -> io::Result<()> {
        let Some((track, key)) = self.alive.remove(&(space, address)) else { return Ok(()) };
        self.end(at_ns, track)?;
        self.lanes.entry(key).or_default().free.push(Reverse(track));
        Ok(())
    }

    fn out_of_memory(&mut self, p: &TimedEvent) -> io::Result<()> {
        let process = self.process_track();
        let event = self.track_event(p, process, event_type::INSTANT, 2)?;
        self.event(p.at_ns, TrackEvent { name_iid: None, name: Some("out of memory".into()), ..event })
    }

    /// Builds an event with its size, address, step and stack.
    fn track_event(
        &mut self,
        p: &TimedEvent,
        track: u64,
        r#type: i32,
        category: u64,
    ) -> io::Result<TrackEvent> {
        let e = &p.event;
        let name = self.stack(e.stack, e.entry_point)?;
        let annotation = |number| DebugAnnotation { name_iid: Some(number), ..DebugAnnotation::default() };
        let number = |at, value| DebugAnnotation { uint_value: Some(value), ..annotation(at) };
        let debug_annotations = vec![
            number(1, e.size),
            DebugAnnotation { pointer_value: Some(e.address), ..annotation(2) },
            number(3, u64::from(p.step)),
            DebugAnnotation { string_value_iid: Some(name), ..annotation(4) },
        ];
        Ok(TrackEvent {
            category_iids: vec![category],
            debug_annotations,
            r#type: Some(r#type),
            name_iid: Some(name),
            track_uuid: Some(track),
            ..TrackEvent::default()
        })
    }

    /// Interns a stack and returns its number: the name is the line that allocates, the value the whole
    /// stack.
    fn stack(&mut self, stack: u32, entry_point: u16) -> io::Result<u64> {
        if let Some(&known) = self.stacks.get(&(stack, entry_point)) {
            return Ok(known);
        }
        self.interned += 1;
        let iid = self.interned;
        self.stacks.insert((stack, entry_point), iid);
        let frames = self.names.frames(stack);
        let labels: Vec<String> = frames.iter().map(|f| self.input.label(f)).collect();
        let place = self.names.allocated_at(&frames);
        let place = place.map_or_else(|| self.input.call(entry_point), |f| self.input.label(f));
        let interned_data = Some(InternedData {
            event_names: vec![named(iid, place)],
            debug_annotation_string_values: vec![named(iid, labels.join("\n"))],
            ..InternedData::default()
        });
        let sequence_flags = Some(NEEDS_INCREMENTAL_STATE);
        self.packet(TracePacket { sequence_flags, interned_data, ..TracePacket::default() })?;
        Ok(iid)
    }
}

fn named(iid: u64, name: impl Into<String>) -> Named {
    Named { iid: Some(iid), name: Some(name.into()) }
}

fn space(e: &Event) -> AddressSpace {
    if MemoryClass::from_code(e.class).is_some_and(MemoryClass::is_handle) {
        AddressSpace::Handle
    } else {
        AddressSpace::Pointer
    }
}

/// Returns the name of the lanes for an allocation of the driver.
fn driver_lanes(e: &Event) -> &'static str {
    match MemoryClass::from_code(e.class) {
        Some(MemoryClass::Code) => "compiled programs",
        Some(class) if class.is_external() => "external",
        Some(class) if class.is_host() || e.device == NO_DEVICE => "pinned",
        _ => "driver allocations",
    }
}
