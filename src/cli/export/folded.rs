//! Folded stacks, one in a line, and the flame graph of them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::input::device_name;
use super::{Error, Input, Result, Value, stats};
use leaktrace_core::format::printable::no_command;

/// Bytes by stack over all recordings.
pub struct Folded {
    value: Value,
    since: Option<u32>,
    /// Whether the process is the outermost frame.
    several: bool,
    stacks: BTreeMap<String, u64>,
}

impl Folded {
    pub fn new(value: Value, since: Option<u32>, several: bool) -> Folded {
        Folded { value, since, several, stacks: BTreeMap::new() }
    }

    pub fn add(&mut self, input: &Input) {
        let names = input.names();
        for f in stats::site_stats(&input.ledger, self.since) {
            let Some(site) = input.ledger.site(f.site) else { continue };
            // A flame graph has no negative areas.
            let Ok(bytes @ 1..) = u64::try_from(f.get(self.value)) else { continue };
            let mut line = String::new();
            if self.several {
                push(&mut line, &input.process());
            }
            push(&mut line, &format!("{} {}", device_name(site.device), site.layer.name()));
            let frames = names.frames(site.stack);
            for frame in frames.iter().rev() {
                push(&mut line, &input.label(frame));
            }
            if frames.is_empty() || site.entry_point != 0 {
                push(&mut line, &input.call(site.entry_point));
            }
            let sum = self.stacks.entry(line).or_default();
            *sum = sum.wrapping_add(bytes);
        }
    }

    /// Writes lines of `outermost;…;innermost bytes`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.stacks.iter().try_for_each(|(stack, bytes)| writeln!(out, "{} {bytes}", no_command(stack)))
    }

    /// Draws the flame graph as SVG.
    pub fn draw(&self, out: &mut impl Write) -> Result<()> {
        let name = match self.value {
            Value::Live => "live",
            Value::Retained => "retained",
            Value::Growth => "growth",
            Value::Peak => "peak",
        };
        if self.stacks.is_empty() {
            return Err(Error::Input(format!("no {name} bytes to draw")));
        }
        let mut options = Options::default();
        options.title = format!("GPU memory by stack: {name} bytes");
        options.count_name = "bytes".to_owned();
        let lines: Vec<String> =
            self.stacks.iter().map(|(stack, bytes)| format!("{stack} {bytes}")).collect();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)?;
        Ok(())
    }
}

/// Appends a frame; characters with a meaning in the format are replaced.
fn push(line: &mut String, frame: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    line.extend(frame.chars().map(|c| match c {
        ';' => ':',
        c => c,
    }));
}
