//! The report as one HTML file that needs nothing else: it carries its data, script and style.
//!
//! Everything is summed up before it is written, so that a page stays small however long the run was. Numbers are the
//! report's own; the page only draws them.

mod cards;
mod history;
mod overview;
mod segments;
mod stacks;

use std::sync::LazyLock;

use serde::Serialize;

use crate::ranks::Gathered;
use cards::Words;
use history::History;
use leaktrace_core::format::tables::Tables;
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::{Finding, Report};
use leaktrace_core::symbols::Names;
use overview::Run;
use segments::Map;
use stacks::Stacks;

/// The limits of a page, so that a file of any number of pages stays below 20 MB.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Points of the timeline, sites listed, and changes of single sites over all points.
    points: usize,
    sites: usize,
    changes: usize,
    /// Bytes of names, and frames in the tree of the stacks.
    text: usize,
    nodes: usize,
    segments: usize,
}

impl Limits {
    /// Shares the limits of a file among its pages.
    pub fn of(pages: usize) -> Limits {
        let share = |all: usize| all / pages.max(1);
        Limits {
            points: share(2000).max(100),
            sites: share(5000).max(50),
            changes: share(400_000),
            text: share(3 << 20),
            nodes: share(150_000),
            segments: share(2000).max(20),
        }
    }
}

/// The data of a page: one recording.
#[derive(Debug, Serialize)]
pub struct Page {
    /// The recording's file name.
    file: String,
    /// What it says in words, as the terminal does.
    words: Words,
    /// As the JSON report has it, without the stacks and the series: `history` has them.
    report: Report,
    /// Indices into `history.sites`: of each finding's sites, each non-leak's, and of what is retained.
    finding_sites: Vec<Vec<usize>>,
    non_leak_sites: Vec<Vec<usize>>,
    retained_sites: Vec<usize>,
    history: History,
    stacks: Stacks,
    segments: Map,
}

impl Page {
    /// Sums up one recording.
    pub fn new(
        file: &str,
        mut report: Report,
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        limits: &Limits,
    ) -> Page {
        let words = Words::of(&report);
        let of_findings = report.findings.iter().chain(&report.non_leaks).flat_map(|f| &f.sites);
        let of_findings = of_findings.flat_map(|s| s.numbers.iter().copied());
        let named: Vec<u32> = of_findings.chain(report.retained.iter().map(|r| r.number)).collect();
        let mut stacks = Stacks::new(limits);
        let history = History::new(ledger, tables, names, &report, &named, &mut stacks, limits);
        let slots = |all: &[Finding]| {
            // The first of each site, in their order, and then what else they are.
            let first =
                |f: &Finding| f.sites.iter().filter_map(|s| s.numbers.first()).copied().collect::<Vec<_>>();
            let others =
                |f: &Finding| f.sites.iter().flat_map(|s| s.numbers.iter().skip(1)).copied().collect();
            let of =
                |f: &Finding| [first(f), others(f)].concat().into_iter().map(|n| history.slot(n)).collect();
            all.iter().map(of).collect()
        };
        let (finding_sites, non_leak_sites) = (slots(&report.findings), slots(&report.non_leaks));
        let retained_sites = report.retained.iter().map(|r| history.slot(r.number)).collect();
        let of_findings = report.findings.iter_mut().chain(&mut report.non_leaks).flat_map(|f| &mut f.sites);
        of_findings.for_each(|s| s.stack.clear());
        report.retained.iter_mut().for_each(|r| r.stack.clear());
        for o in &mut report.out_of_memory {
            o.retained.iter_mut().for_each(|r| r.stack.clear());
        }
        report.steps.series.clear();
        let segments = Map::new(ledger, &history, limits.segments);
        Page {
            file: file.to_owned(),
            words,
            report,
            finding_sites,
            non_leak_sites,
            retained_sites,
            history,
            stacks,
            segments,
        }
    }
}

/// Bytes that the data of a file may take: of one recording, and of several, whose file is sent around.
const FILE: usize = 18 << 20;
const FILES: usize = 4 << 20;

/// The pages of one file, written down as they come. Where they grow too many, those without a finding are left out first,
/// then the later ones.
#[derive(Debug)]
pub struct Pages {
    /// Each with whether anything was found.
    pages: Vec<(bool, String)>,
    bytes: usize,
    most: usize,
    left_out: usize,
    /// The page over all, where there are several.
    overview: String,
}

impl Pages {
    /// Prepares a file of so many recordings.
    pub fn of(recordings: usize) -> Pages {
        let most = if recordings > 1 { FILES } else { FILE };
        Pages { pages: Vec::new(), bytes: 0, most, left_out: 0, overview: "null".to_owned() }
    }

    /// Puts the reports over all processes before the pages of each.
    pub fn set_overview(&mut self, runs: &[Gathered]) {
        let runs: Vec<Run<'_>> = runs.iter().map(Run::of).collect();
        self.overview = written(&runs);
    }

    /// Writes a page down.
    pub fn add(&mut self, page: &Page) {
        self.keep(!page.report.findings.is_empty(), written(page));
    }

    fn keep(&mut self, found: bool, data: String) {
        self.bytes += data.len();
        self.pages.push((found, data));
        while self.bytes > self.most && self.pages.len() > 1 {
            let clean = self.pages.iter().rposition(|(found, _)| !found);
            self.bytes -= self.pages.remove(clean.unwrap_or(self.pages.len() - 1)).1.len();
            self.left_out += 1;
        }
    }
}

/// Writes data as JSON for a script.
fn written<T: Serialize>(data: &T) -> String {
    // Only maps with keys that are no strings can fail to be written; there are none.
    let data = serde_json::to_string(data).unwrap_or_default();
    // No end tag and no comment may begin inside of a script: JSON has the same character in another way.
    data.replace('<', "\\u003c")
}

/// Returns the file: one page, or one for each recording to choose from.
pub fn render(pages: &Pages) -> String {
    let data: Vec<&str> = pages.pages.iter().map(|(_, data)| data.as_str()).collect();
    let (data, left_out) = (format!("[{}]", data.join(",")), pages.left_out.to_string());
    let [head, body, middle, tail] = &*SHELL;
    [head.as_str(), &left_out, body, &data, middle, &pages.overview, tail].concat()
}

/// The page without its data: what stands before the number of recordings left out, before the data, before the overview,
/// and behind it.
static SHELL: LazyLock<[String; 4]> = LazyLock::new(|| {
    const PARTS: [(&str, &str); 12] = [
        ("/*uplot.css*/", include_str!("vendor/uPlot.min.css")),
        ("/*style*/", include_str!("style.css")),
        ("/*uplot.js*/", include_str!("vendor/uPlot.iife.min.js")),
        ("/*d3.js*/", include_str!("vendor/d3-hierarchy.min.js")),
        ("<!--uplot license-->", include_str!("vendor/uPlot.LICENSE")),
        ("<!--d3 license-->", include_str!("vendor/d3-hierarchy.LICENSE")),
        ("/*model*/", include_str!("model.js")),
        ("/*timeline*/", include_str!("timeline.js")),
        ("/*icicle*/", include_str!("icicle.js")),
        ("/*segments*/", include_str!("segments.js")),
        ("/*ranks*/", include_str!("overview.js")),
        ("/*page*/", include_str!("page.js")),
    ];
    let page = include_str!("page.html").to_owned();
    let page = PARTS.iter().fold(page, |page, (marker, part)| page.replace(marker, part));
    let mut rest = page.as_str();
    let [head, body, middle] = ["/*left-out*/", "/*data*/", "/*overview*/"].map(|marker| {
        let (before, after) = rest.split_once(marker).unwrap_or((rest, ""));
        rest = after;
        before.to_owned()
    });
    [head, body, middle, rest.to_owned()]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_finding_is_left_out_first() {
        let mut pages = Pages::of(1);
        let data = |n: usize| "0".repeat(FILE / 4 - 8) + &n.to_string();
        // The third and the fifth have none.
        (0..7).for_each(|n| pages.keep(n != 2 && n != 4, data(n)));
        let kept: Vec<usize> = pages.pages.iter().map(|(_, data)| data.parse().unwrap()).collect();
        assert_eq!((kept, pages.left_out), (vec![0, 1, 3, 5], 3));
        assert!(render(&pages).len() < 20_000_000);
        assert!(render(&pages).contains("data-left-out=\"3\""));
        // A single page is kept whatever its size.
        let mut one = Pages::of(1);
        one.keep(false, "0".repeat(FILE + 1));
        assert_eq!((one.pages.len(), one.left_out), (1, 0));
    }
}
