//! One report over many processes.

use super::{BAD, BOLD, DIM, GOOD, Look, PLAIN, Page, UNSURE, source::Sources};
use crate::ranks::{Cause, Gathered};
use leaktrace_core::cpython;
use leaktrace_core::report::End;
use leaktrace_core::report::text::{finding, style_of};
use leaktrace_core::report::wording::{count, exact, found, grouped, location, sanitize, size};

/// Processes named in a sentence and listed in the table, if not all are wanted.
const NAMES: usize = 8;
const TABLE: usize = 16;

/// Returns the whole report.
pub fn render(g: &Gathered, look: &Look) -> String {
    let mut page = Page::new(look.layout.width, look.colour);
    verdict(&mut page, g);
    head(&mut page, g);
    page.gap();
    for (i, c) in g.causes.iter().enumerate() {
        let spread = spread(g, c, look.layout.all);
        let mut sources = Sources::of(&c.program);
        finding(&mut page, i + 1, &c.finding, &c.program, &mut sources, look.layout.all, Some(&spread));
    }
    early(&mut page, g);
    table(&mut page, g, look.layout.all);
    coverage(&mut page, g);
    page.into_text()
}

fn verdict(page: &mut Page, g: &Gathered) {
    let over = count(g.processes.len() as f64, "recording");
    let (style, said) = match g.causes.first() {
        Some(first) => {
            let findings: Vec<_> = g.causes.iter().map(|c| c.finding.clone()).collect();
            let everywhere = g.causes.iter().filter(|c| c.everywhere).count();
            let alone = g.causes.iter().filter(|c| c.alone).count();
            let mut text = format!("{} found in {over}", found(&findings));
            if everywhere > 0 && g.judged() > 1 {
                text.push_str(&format!(", {everywhere} in all of them"));
            }
            if alone > 0 {
                text.push_str(&format!(", {alone} in one alone"));
            }
            (style_of(first.finding.kind), text)
        }
        None if g.judged() == 0 => (UNSURE, format!("Not judged: none of {over} has steps enough.")),
        None => (GOOD, format!("No leak found in {over}.")),
    };
    page.wrap("", 2, &[(style, &said)]);
}

fn head(page: &mut Page, g: &Gathered) {
    page.wrap("  ", 6, &[(PLAIN, &sanitize(&g.program.argv.join(" ")))]);
    let mut hosts: Vec<&str> = g.processes.iter().map(|p| p.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let ranks = g.processes.iter().filter(|p| p.rank.is_some()).count();
    let stepping: Vec<u32> = g.processes.iter().map(|p| p.steps).filter(|&s| s > 0).collect();
    let steps = match (stepping.iter().min(), stepping.iter().max()) {
        (Some(least), Some(most)) if least == most => format!("{} each", count(f64::from(*most), "step")),
        (Some(least), Some(most)) => {
            format!("{} to {} steps", grouped(u64::from(*least)), grouped(u64::from(*most)))
        }
        _ => "no step was seen".to_owned(),
    };
    let without = g.processes.len() - stepping.len();
    let mut text =
        format!("{} processes on {}", grouped(g.processes.len() as u64), count(hosts.len() as f64, "host"));
    if ranks > 0 {
        text.push_str(&format!(", {ranks} with a rank"));
    }
    text.push_str(&format!("; {steps}"));
    if without > 0 && !stepping.is_empty() {
        text.push_str(&format!("; {without} made no step"));
    }
    page.wrap("  ", 6, &[(DIM, &text)]);
    for (gap, n) in g.gaps.iter().filter(|(gap, _)| cpython::is_interpreters(gap)) {
        page.wrap("  ", 6, &[(UNSURE, &sanitize(gap)), (DIM, &format!("({n}×)"))]);
    }
}

/// Returns the processes of a cause: `on all 8 processes, 11.0 to 13.0 KiB per step, most on rank 5`
fn spread(g: &Gathered, c: &Cause, all: bool) -> String {
    let names: Vec<String> = c.members.iter().map(|m| sanitize(&g.processes[m.process].name())).collect();
    let [least, middle, most] = c.spread;
    let judged = g.judged().max(c.members.len());
    let mut text = match names.len() {
        1 if c.alone => format!("on {} alone of {judged} processes", names[0]),
        n if c.everywhere => format!("on all {n} processes"),
        n => {
            let shown = if all { n } else { n.min(NAMES) };
            let more = if n > shown { format!(" and {} more", n - shown) } else { String::new() };
            format!("on {n} of {judged} processes ({}{more})", names[..shown].join(", "))
        }
    };
    if names.len() > 1 && most > 0.0 {
        let largest =
            c.members.iter().zip(&names).max_by(|a, b| a.0.bytes_per_step.total_cmp(&b.0.bytes_per_step));
        let largest = largest.map_or("", |(_, name)| name);
        text.push_str(&match least == most {
            true => format!(", {} per step on each", exact(most)),
            false => format!(
                ", {} to {} per step, {} in the middle, most on {largest}",
                size(least),
                size(most),
                size(middle)
            ),
        });
    }
    for (at, of) in &c.partial {
        let names: Vec<String> = of.iter().take(NAMES).map(|&i| sanitize(&g.processes[i].name())).collect();
        let only = if of.len() == 1 { "alone" } else { "only" };
        let more = if of.len() > NAMES { format!(" and {} more", of.len() - NAMES) } else { String::new() };
        let at = sanitize(&location(at.as_ref(), &c.program.base));
        text.push_str(&format!("; {at} on {}{more} {only}", names.join(", ")));
    }
    text
}

fn early(page: &mut Page, g: &Gathered) {
    if g.ended_early.is_empty() {
        return;
    }
    page.line(&[(BAD, "Ended early")]);
    for &i in &g.ended_early {
        let p = &g.processes[i];
        let text = format!(
            "{} after step {} of {}, {:.1} s (process {} on {}, {})",
            p.how_it_ended,
            grouped(u64::from(p.steps)),
            grouped(u64::from(g.most_steps(p))),
            p.duration_s,
            p.pid,
            sanitize(&p.host),
            sanitize(&p.file),
        );
        page.wrap("  ", 4, &[(BOLD, &format!("{}:", sanitize(&p.name()))), (PLAIN, &text)]);
    }
    page.gap();
}

fn table(page: &mut Page, g: &Gathered, all: bool) {
    let shown = if all { g.processes.len() } else { g.processes.len().min(TABLE) };
    page.line(&[(BOLD, "Processes")]);
    let head = format!("  {:>8}  {:>10}  {:>10}  {:>8}  process", "steps", "live", "peak", "findings");
    page.line(&[(DIM, &head)]);
    for p in g.processes.iter().take(shown) {
        let head = format!(
            "  {:>8}  {:>10}  {:>10}  {:>8}  ",
            grouped(u64::from(p.steps)),
            size(p.live_bytes as f64),
            size(p.peak_bytes as f64),
            p.findings
        );
        let indent = head.chars().count();
        let end = match (p.end, p.exit_status) {
            (End::Clean, None | Some(0)) => String::new(),
            _ => format!(", {}", p.how_it_ended),
        };
        let name = p.rank.as_ref().map_or_else(String::new, |_| format!("{}, ", p.name()));
        let text = format!("{name}{} on {}{end}", p.pid, p.host);
        page.wrap(&head, indent, &[(PLAIN, &sanitize(&text))]);
    }
    if shown < g.processes.len() {
        let more = format!("  and {} more (--all)", grouped((g.processes.len() - shown) as u64));
        page.line(&[(DIM, &more)]);
    }
    page.gap();
}

fn coverage(page: &mut Page, g: &Gathered) {
    if g.suppressed > 0 {
        page.line(&[(DIM, &format!("Suppressed: {}", count(f64::from(g.suppressed), "finding")))]);
    }
    let lost = match g.dropped_events {
        0 => "no event was lost".to_owned(),
        n => format!("{} events lost", grouped(n)),
    };
    page.line(&[(BOLD, "Coverage: "), (if g.dropped_events == 0 { PLAIN } else { UNSURE }, &lost)]);
    for (gap, n) in g.gaps.iter().filter(|(gap, _)| !cpython::is_interpreters(gap)) {
        let n = format!("({n}×)");
        page.wrap("  ", 4, &[(UNSURE, "coverage gap:"), (PLAIN, &sanitize(gap)), (DIM, &n)]);
    }
    for (file, why) in &g.unread {
        page.wrap("  ", 4, &[(UNSURE, "not read:"), (PLAIN, &sanitize(&format!("{file}: {why}")))]);
    }
}
