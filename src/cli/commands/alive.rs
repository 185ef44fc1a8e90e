//! `leaktrace alive`: what is alive in a recording at this moment, by the step it was born in. For programs that judge by
//! themselves (the pytest plugin); hidden from people, who have `report`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::{Alive as Arguments, Failure};
use crate::native_symbols::Files;
use leaktrace_core::format::reader;
use leaktrace_core::ledger::{Layer, Ledger, retained};
use leaktrace_core::report::Place;
use leaktrace_core::symbols::Names;

#[derive(Serialize)]
struct Answer {
    schema: &'static str,
    /// Steps that ended so far.
    steps: u32,
    alive: Vec<Row>,
}

/// The blocks of one site that were born in one step; those of the step that goes on now have the number after the last.
#[derive(Serialize)]
struct Row {
    birth: u32,
    layer: &'static str,
    device: u8,
    bytes: u64,
    blocks: u64,
    /// `null`: no stack was taken.
    allocated_at: Option<Place>,
}

pub fn alive(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let file = arguments.file.display();
    let recording = reader::read(&arguments.file).map_err(|e| Failure(format!("{file}: {e}")))?;
    let ledger = Ledger::replay(recording.checkpoint.as_deref(), recording.events()).ok_or_else(|| {
        Failure(format!("{file}: holds a checkpoint of another version of leaktrace; read it with that one"))
    })?;
    let names = Names::new(&recording.tables, Some(Box::new(Files::default())));
    let place = |site| {
        let stack = ledger.site(site)?.stack;
        let frames = names.frames(stack);
        let at = names.allocated_at(&frames)?;
        Some(Place { file: at.file.clone(), line: at.line, function: at.function.clone() })
    };
    let answer =
        Answer { schema: "leaktrace.alive/1", steps: ledger.step_count(), alive: rows(&ledger, place) };
    let text = serde_json::to_string(&answer).unwrap_or_default();
    writeln!(io::stdout(), "{text}").map_err(|e| Failure(format!("standard output: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

fn rows(ledger: &Ledger, place: impl Fn(u32) -> Option<Place>) -> Vec<Row> {
    let sites: Vec<u32> = retained(ledger, None).iter().map(|r| r.site).collect();
    let mut sums: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    for living in ledger.live_at_sites(&sites) {
        let sum = sums.entry((living.birth, living.site)).or_default();
        (sum.0, sum.1) = (sum.0 + 1, sum.1.saturating_add(living.bytes));
    }
    let on_device = |site| ledger.site(site).filter(|s| s.layer != Layer::Host);
    sums.into_iter()
        .filter_map(|((birth, site), (blocks, bytes))| {
            let of = on_device(site)?;
            let (layer, device) = (of.layer.name(), of.device);
            Some(Row { birth, layer, device, bytes, blocks, allocated_at: place(site) })
        })
        .collect()
}
