//! The live view: one frame of what running processes hold. Pure: what was read in, widgets out.

use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};

use leaktrace_core::format::printable::{no_command, printable};
use leaktrace_core::ledger::verdict::{Kind, MIN_STEPS};
use leaktrace_core::report::text::{fitted, sparkline};
use leaktrace_core::report::wording::{
    self, confidence, count, grouped, held_by, is_named, location, place, place_in, rate, sanitize, size,
};
use leaktrace_core::report::{Device, End, Location, Report, Retained};

/// The last steps, over which steps per second are taken.
const SPEED: usize = 20;
/// Columns of the curve of live bytes.
const CURVE: usize = 40;

/// A process as it was last read.
pub struct Seen {
    pub file: String,
    /// The report, or why the recording could not be read.
    pub report: Result<Report, String>,
    /// What was allocated after step `since` and is still live.
    pub grown: Vec<Retained>,
    pub since: u32,
    /// Seconds since 1970 when it was read.
    pub at_s: f64,
}

/// How the view is shown.
#[derive(Clone, Copy, Default)]
pub struct State {
    pub by_size: bool,
    pub paused: bool,
}

/// A growing line, over all processes.
struct Growing {
    at: String,
    grown: u64,
    blocks: u64,
    /// The rate over the last steps of the process where it is largest.
    per_step: f64,
    processes: usize,
}

/// Draws one frame.
pub fn draw(frame: &mut Frame<'_>, seen: &[Seen], state: State) {
    let devices: usize = seen.iter().filter_map(|s| s.report.as_ref().ok()).map(|r| r.devices.len()).sum();
    let (processes, devices) = (seen.len().min(12) as u16, devices.min(16) as u16);
    let [title, table, device, sites, findings] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(processes + 2),
        Constraint::Length(devices + 2),
        Constraint::Min(6),
        Constraint::Min(8),
    ])
    .areas(frame.area());
    if seen.is_empty() {
        let head = "leaktrace top: waiting for the first recording    q end";
        return frame.render_widget(Line::styled(head, bold()), title);
    }
    let running = seen.iter().filter(|s| is_running(s)).count();
    let paused = if state.paused { ", paused" } else { "" };
    let head = format!(
        "leaktrace top: {running} of {} processes running{paused}    q end, s sort, p pause",
        seen.len()
    );
    frame.render_widget(Line::styled(head, bold()), title);
    frame.render_widget(processes_table(seen), table);
    frame.render_widget(devices_table(seen), device);
    frame.render_widget(sites_table(seen, state, sites), sites);
    frame.render_widget(Paragraph::new(found(seen)).wrap(Wrap { trim: false }), findings);
}

/// Returns one frame as text.
pub fn once(seen: &[Seen], width: u16) -> String {
    let backend = TestBackend::new(width, 24 + 3 * seen.len().min(16) as u16);
    // Drawing into memory cannot fail.
    let Ok(mut terminal) = ratatui::Terminal::new(backend);
    let Ok(_) = terminal.draw(|frame| draw(frame, seen, State::default()));
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(width)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(&no_command(&printable(line.trim_end())));
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn is_running(s: &Seen) -> bool {
    s.report.as_ref().is_ok_and(|r| r.program.end == End::Running)
}

fn name(report: &Report) -> String {
    let rank = report.program.rank.as_ref().map_or_else(String::new, |r| format!(" rank {r}"));
    sanitize(&format!("{}{rank}", report.program.pid))
}

/// Returns steps per second over the last steps.
fn speed(report: &Report) -> Option<f64> {
    let series = &report.steps.series;
    let first = series.get(series.len().saturating_sub(SPEED))?;
    let last = series.last()?;
    let seconds = last.at_s - first.at_s;
    (seconds > 0.0).then(|| f64::from(last.step.saturating_sub(first.step)) / seconds)
}

fn processes_table(seen: &[Seen]) -> Table<'static> {
    let rows = seen.iter().take(12).map(|s| match &s.report {
        Err(why) => {
            Row::new(vec![Cell::from(sanitize(&s.file)), Cell::from(sanitize(why)).style(Color::Yellow)])
        }
        Ok(r) => {
            let (state, style) = match r.program.end {
                End::Running => ("running", Style::new().fg(Color::Green)),
                End::Clean => ("ended", dim()),
                End::Detached => ("detached", dim()),
                End::Replaced => ("replaced by exec", dim()),
                End::Killed => ("killed", Style::new().fg(Color::Red)),
            };
            let sum = |of: fn(&Device) -> u64| r.devices.iter().map(of).fold(0, u64::saturating_add);
            let live = sum(|d| d.live_bytes);
            let reserved = sum(|d| d.reserved_bytes);
            let last = r.steps.series.last().map_or(0.0, |step| step.at_s);
            let ago = (s.at_s - r.program.began_s - last).max(0.0);
            let ago = match r.program.end {
                End::Running if r.steps.count > 0 => format!("{ago:.1} s ago"),
                _ => String::new(),
            };
            let leaks = r.findings.iter().filter(|f| f.kind == Kind::Leak).count();
            let style_of_leaks = if leaks > 0 { Style::new().fg(Color::Red) } else { Style::new() };
            Row::new(vec![
                Cell::from(name(r)),
                Cell::from(state).style(style),
                Cell::from(grouped(u64::from(r.steps.count))),
                Cell::from(speed(r).map_or_else(String::new, |s| format!("{s:.1}"))),
                Cell::from(ago),
                Cell::from(size(live as f64)),
                Cell::from(size(reserved as f64)),
                Cell::from(found_so_far(leaks, r.findings.len() - leaks)).style(style_of_leaks),
                Cell::from(sanitize(&r.program.argv.join(" "))),
            ])
        }
    });
    let head =
        ["process", "state", "steps", "steps/s", "last step", "retained", "reserved", "found", "command"];
    let [a, b, c, d, e, f, g, h] = [16, 8, 8, 8, 10, 10, 10, 16].map(Constraint::Length);
    let widths = [a, b, c, d, e, f, g, h, Constraint::Fill(1)];
    Table::new(rows, widths).header(Row::new(head).style(dim()))
}

/// Returns `1 leak, 2 more`.
fn found_so_far(leaks: usize, others: usize) -> String {
    match (leaks, others) {
        (0, 0) => "nothing".to_owned(),
        (0, n) => count(n as f64, "finding"),
        (n, 0) => count(n as f64, "leak"),
        (n, m) => format!("{}, {m} more", count(n as f64, "leak")),
    }
}

/// Draws a curve from its least value to its most: what changes is seen, however much is live all the time.
fn scaled(values: &[u64]) -> String {
    let (least, most) =
        (values.iter().min().copied().unwrap_or(0), values.iter().max().copied().unwrap_or(0));
    let above: Vec<u64> = values.iter().map(|value| value - least).collect();
    format!("{}  {} to {}", sparkline(&above, CURVE), size(least as f64), size(most as f64))
}

fn devices_table(seen: &[Seen]) -> Table<'static> {
    let of = |s: &Seen| -> Vec<Row<'static>> {
        let Ok(r) = &s.report else { return Vec::new() };
        let row = |d: &Device| {
            let steps = r.steps.series.iter().rev().take(2 * CURVE);
            let mut curve: Vec<u64> = steps
                .filter_map(|step| step.devices.iter().find(|e| e.index == d.index).map(|e| e.live_bytes))
                .collect();
            curve.reverse();
            let total = if d.total_bytes > 0 { size(d.total_bytes as f64) } else { String::new() };
            let cells = [
                format!("{} device {}", name(r), d.index),
                size(d.live_bytes as f64),
                size(d.peak_bytes as f64),
                size(d.reserved_bytes as f64),
                total,
                if curve.is_empty() { String::new() } else { scaled(&curve) },
            ];
            Row::new(cells.map(Cell::from).to_vec())
        };
        r.devices.iter().map(row).collect()
    };
    let rows: Vec<Row<'static>> = seen.iter().flat_map(of).take(16).collect();
    let head = ["device", "retained", "peak", "reserved", "total", "the last steps"];
    let [a, b, c, d, e] = [26, 10, 10, 10, 10].map(Constraint::Length);
    let widths = [a, b, c, d, e, Constraint::Fill(1)];
    Table::new(rows, widths).header(Row::new(head).style(dim()))
}

/// Lists by line what the last steps allocated and is still live.
fn growing(seen: &[Seen]) -> Vec<Growing> {
    let mut all: Vec<Growing> = Vec::new();
    for s in seen {
        let Ok(r) = &s.report else { continue };
        let steps = f64::from(r.steps.count.saturating_sub(s.since).max(1));
        let mut of_this: Vec<(String, u64, u64)> = Vec::new();
        for g in &s.grown {
            let mut at = sanitize(&place_in(g.allocated_at.as_ref(), g.library_at.as_ref(), &r.program.base));
            if g.layer != "block" {
                at.push_str(&format!(" ({})", g.layer));
            }
            match of_this.iter_mut().find(|o| o.0 == at) {
                Some(o) => (o.1, o.2) = (o.1.saturating_add(g.live_bytes), o.2.saturating_add(g.live_blocks)),
                None => of_this.push((at, g.live_bytes, g.live_blocks)),
            }
        }
        for (at, grown, blocks) in of_this {
            let per_step = grown as f64 / steps;
            match all.iter_mut().find(|g| g.at == at) {
                Some(g) => {
                    g.grown = g.grown.saturating_add(grown);
                    g.blocks = g.blocks.saturating_add(blocks);
                    g.per_step = g.per_step.max(per_step);
                    g.processes += 1;
                }
                None => all.push(Growing { at, grown, blocks, per_step, processes: 1 }),
            }
        }
    }
    all
}

fn sites_table(seen: &[Seen], state: State, area: Rect) -> Table<'static> {
    let mut all = growing(seen);
    match state.by_size {
        true => all.sort_by_key(|g| std::cmp::Reverse(g.grown)),
        false => all.sort_by(|a, b| b.per_step.total_cmp(&a.per_step)),
    }
    let rows = all.iter().take(usize::from(area.height.saturating_sub(2))).map(|g| {
        let cells = [
            format!("{}/step", size(g.per_step.round())),
            size(g.grown as f64),
            grouped(g.blocks),
            g.processes.to_string(),
            fitted(&g.at, usize::from(area.width).saturating_sub(48).max(20)),
        ];
        Row::new(cells.map(Cell::from).to_vec())
    });
    let rows: Vec<Row<'static>> = rows.collect();
    let steps = seen.iter().filter_map(|s| Some(s.report.as_ref().ok()?.steps.count.saturating_sub(s.since)));
    let over = count(f64::from(steps.max().unwrap_or(0)), "step");
    let head = ["growth", "stayed", "blocks", "processes"].map(str::to_owned).into_iter();
    let head: Vec<String> = head.chain([format!("where, over the last {over}")]).collect();
    let [a, b, c, d] = [14, 10, 9, 9].map(Constraint::Length);
    let widths = [a, b, c, d, Constraint::Fill(1)];
    Table::new(rows, widths).header(Row::new(head).style(dim()))
}

/// Lists the findings so far, one line each; one that several processes have is listed once.
fn found(seen: &[Seen]) -> Vec<Line<'static>> {
    let mut listed: Vec<(String, Option<Location>, Kind, usize)> = Vec::new();
    let mut waiting = 0;
    for r in seen.iter().filter_map(|s| s.report.as_ref().ok()) {
        if r.steps.count < MIN_STEPS {
            waiting = waiting.max(MIN_STEPS - r.steps.count);
        }
        for f in &r.findings {
            let at = f.sites.first().and_then(|s| s.allocated_at.clone());
            if let Some(known) = listed.iter_mut().find(|t| t.1 == at && t.2 == f.kind) {
                known.3 += 1;
                continue;
            }
            let held = f.holders.first().filter(|h| is_named(&h.path));
            let held = held.map_or_else(String::new, |h| format!(", {}", held_by(&h.path)));
            let much = rate(f).unwrap_or_else(|| size(f.live_bytes as f64));
            let text = format!(
                "({}): {much}, {}{held}",
                confidence(f.confidence),
                f.sites.first().map_or_else(|| location(None, ""), |site| place(site, &r.program.base))
            );
            listed.push((sanitize(&text), at, f.kind, 1));
        }
    }
    let mut lines = vec![Line::styled("findings", dim())];
    for (text, _, kind, n) in listed {
        let colour = if kind == Kind::Leak { Color::Red } else { Color::Yellow };
        let on = if n > 1 { format!(", in {n} processes") } else { String::new() };
        lines.push(Line::from(vec![
            Span::styled(wording::kind(kind).to_owned(), bold().fg(colour)),
            Span::raw(format!(" {text}{on}")),
        ]));
    }
    if lines.len() == 1 {
        let text = match waiting {
            0 => "none so far".to_owned(),
            n => format!("none yet: {} more are needed to judge", count(f64::from(n), "step")),
        };
        lines.push(Line::raw(text));
    }
    lines
}
