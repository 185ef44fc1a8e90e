//! `leaktrace live-set`: what is alive in a recording at this moment, by the step that allocated it. For
//! programs that judge by themselves (the pytest plugin); hidden from people, who have `report`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;

use super::{Failure, LiveSet as Arguments, input, output};
use crate::export::Input;
use leaktrace_core::ledger::{Layer, Ledger, retained};
use leaktrace_core::report::Location;

/// Addresses listed of a site in one step.
const ADDRESSES: usize = 16;

#[derive(Serialize)]
struct Answer {
    schema: &'static str,
    /// Steps that ended so far.
    steps: u32,
    rows: Vec<Row>,
}

/// The blocks of one site that one step allocated; the step that has not ended yet has the number after the
/// last.
#[derive(Serialize)]
struct Row {
    step: u32,
    layer: &'static str,
    device: u8,
    bytes: u64,
    blocks: u64,
    /// Where some of the blocks begin.
    addresses: Vec<u64>,
    /// `null`: no stack was taken.
    allocated_at: Option<Location>,
}

pub fn live_set(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let input = Input::read(&arguments.file).map_err(|why| input::failure(&arguments.file, &why))?;
    let (ledger, names) = (&input.ledger, input.names());
    let place = |site| {
        let stack = ledger.site(site)?.stack;
        let frames = names.frames(stack);
        let at = names.allocated_at(&frames)?;
        Some(Location { file: at.file.clone(), line: at.line, function: at.function.clone() })
    };
    let answer =
        Answer { schema: "leaktrace.live-set/1", steps: ledger.step_count(), rows: rows(ledger, place) };
    // Numbers and strings only: that cannot fail.
    let text = serde_json::to_string(&answer).unwrap_or_default() + "\n";
    output::write(None, &[], text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Sums up what is alive on devices, by the step that allocated it and by site.
fn rows(ledger: &Ledger, place: impl Fn(u32) -> Option<Location>) -> Vec<Row> {
    let sites: Vec<u32> = retained(ledger, None).iter().map(|r| r.site).collect();
    let mut sums: BTreeMap<(u32, u32), (u64, u64, Vec<u64>)> = BTreeMap::new();
    for living in ledger.live_at_sites(&sites) {
        let sum = sums.entry((living.birth, living.site)).or_default();
        (sum.0, sum.1) = (sum.0 + 1, sum.1.saturating_add(living.bytes));
        if sum.2.len() < ADDRESSES {
            sum.2.push(living.address);
        }
    }
    let on_device = |site| ledger.site(site).filter(|s| !matches!(s.layer, Layer::Host | Layer::Code));
    sums.into_iter()
        .filter_map(|((step, site), (blocks, bytes, addresses))| {
            let of = on_device(site)?;
            let (layer, device) = (of.layer.name(), of.device);
            Some(Row { step, layer, device, bytes, blocks, addresses, allocated_at: place(site) })
        })
        .collect()
}
