//! A pprof profile (gzipped `profile.proto`): what each site holds, by stack. `go tool pprof`, Speedscope and
//! Pyroscope read it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::input::device;
use super::pprof_proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use super::{Input, Result, stats};
use leaktrace_core::format::tables::Module;
use leaktrace_core::symbols::{FrameKind, NamedFrame};

/// The name and the unit of each value of a sample.
const VALUES: [(&str, &str); 5] = [
    ("live_bytes", "bytes"),
    ("live_blocks", "count"),
    ("retained_bytes", "bytes"),
    ("growth", "bytes"),
    ("peak_bytes", "bytes"),
];

/// The object files of one process by path.
type Modules<'a> = HashMap<&'a str, (u32, &'a Module)>;

/// A profile of all recordings.
pub struct Pprof {
    profile: Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    /// By function, line, mapping and address.
    locations: HashMap<(u64, i64, u64, u64), u64>,
    /// By the number of the process and the path of the module.
    mappings: HashMap<(usize, String), u64>,
    several: bool,
    processes: usize,
    since: Option<u32>,
}

impl Pprof {
    pub fn new(since: Option<u32>, several: bool) -> Pprof {
        let mut pprof = Pprof {
            profile: Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            mappings: HashMap::new(),
            several,
            processes: 0,
            since,
        };
        // The format wants the empty string first.
        pprof.string("");
        for (name, unit) in VALUES {
            let (r#type, unit) = (pprof.string(name), pprof.string(unit));
            pprof.profile.sample_type.push(ValueType { r#type, unit });
        }
        pprof.profile.default_sample_type = pprof.string(VALUES[0].0);
        pprof
    }

    pub fn add(&mut self, input: &Input) {
        self.processes += 1;
        let began = input.recording.began_ns as i64;
        let p = &mut self.profile;
        if p.time_nanos == 0 || began < p.time_nanos {
            p.time_nanos = began;
        }
        p.duration_nanos = p.duration_nanos.max(input.ledger.last_ns() as i64);
        let comment = self.string(&input.argv().join(" "));
        self.profile.comment.push(comment);
        let names = input.names();
        let mut modules: Modules = HashMap::new();
        for (&id, module) in &input.recording.tables.modules {
            let known = modules.entry(&module.path).or_insert((id, module));
            // A module that is mapped more than once counts where it was first.
            if id < known.0 {
                *known = (id, module);
            }
        }
        for f in stats::site_stats(&input.ledger, self.since) {
            let Some(site) = input.ledger.site(f.site) else { continue };
            let value = vec![
                f.live_bytes as i64,
                f.live_blocks as i64,
                f.retained_bytes as i64,
                f.growth_bytes,
                f.peak_bytes as i64,
            ];
            let mut frames = names.frames(site.stack);
            if frames.is_empty() || site.entry_point != 0 {
                frames.insert(0, call(input.call(site.entry_point)));
            }
            let location_id = frames.iter().map(|frame| self.location(&modules, frame)).collect();
            let device = device(site.device).map_or_else(|| "host".to_owned(), |d| d.to_string());
            let mut label = vec![self.label("device", &device), self.label("layer", site.layer.name())];
            if self.several {
                label.push(self.label("pid", &input.pid().to_string()));
                if let Some(rank) = input.meta("rank") {
                    label.push(self.label("rank", rank));
                }
            }
            self.profile.sample.push(Sample { location_id, value, label });
        }
    }

    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        let mut gz = GzEncoder::new(out, Compression::default());
        gz.write_all(&self.profile.encode_to_vec())?;
        gz.finish()?;
        Ok(())
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let next = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), next);
        next
    }

    fn label(&mut self, key: &str, value: &str) -> Label {
        Label { key: self.string(key), str: self.string(value) }
    }

    fn location(&mut self, modules: &Modules, frame: &NamedFrame) -> u64 {
        let (name, filename) = (self.string(&frame.function), self.string(&frame.file));
        let functions = &mut self.profile.function;
        let function_id = *self.functions.entry((name, filename)).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            // No `system_name`: pprof would demangle it, and take `<module>` for a template.
            functions.push(Function { id, name, filename });
            id
        });
        let line = frame.line.map_or(0, i64::from);
        let (mapping_id, address) = self.mapped(modules, frame);
        let locations = &mut self.profile.location;
        *self.locations.entry((function_id, line, mapping_id, address)).or_insert_with(|| {
            let id = locations.len() as u64 + 1;
            locations.push(Location { id, mapping_id, address, line: vec![Line { function_id, line }] });
            id
        })
    }

    /// Returns the mapping of a native frame, and its address where it has no name.
    fn mapped(&mut self, modules: &Modules, frame: &NamedFrame) -> (u64, u64) {
        let Some(path) = &frame.module else { return (0, 0) };
        let Some(&(_, module)) = modules.get(path.as_str()) else { return (0, 0) };
        let address = nameless_offset(frame).map_or(0, |offset| offset.wrapping_add(module.bias));
        let next = self.profile.mapping.len() as u64 + 1;
        let id = match self.mappings.entry((self.processes, path.clone())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                new.insert(next);
                let mapping = self.mapping(next, module);
                self.profile.mapping.push(mapping);
                next
            }
        };
        (id, address)
    }

    fn mapping(&mut self, id: u64, module: &Module) -> Mapping {
        let build_id: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
        Mapping {
            id,
            memory_start: module.start,
            memory_limit: module.end,
            filename: self.string(&module.path),
            build_id: self.string(&build_id),
            // Every location has a function already, if only as an offset: pprof need not look for the file.
            has_functions: true,
        }
    }
}

/// Makes a frame of the call that allocated.
fn call(function: String) -> NamedFrame {
    NamedFrame { kind: FrameKind::Native, file: String::new(), line: None, function, module: None }
}

/// Returns the offset in a frame's name `libx.so+0x12`.
fn nameless_offset(frame: &NamedFrame) -> Option<u64> {
    let base = frame.file.rsplit('/').next()?;
    let offset = frame.function.strip_prefix(base)?.strip_prefix("+0x")?;
    u64::from_str_radix(offset, 16).ok()
}
