//! The annotations of a run: named moments.

use crate::format::event::AnnotationKind;
use crate::format::tables::Tables;
use crate::ledger::{self, Ledger};
use crate::report::{Annotation, AnnotationCount};

/// Characters kept of a name.
const NAME: usize = 200;
/// Names counted, the most frequent first.
const COUNTED: usize = 20;

/// Returns the name to list an annotation by; `None`: it is not listed.
fn name(tables: &Tables, kind: AnnotationKind, label: u32) -> Option<String> {
    let label = || tables.labels.get(&label).map(|text| text.chars().take(NAME).collect());
    match kind {
        AnnotationKind::User => label(),
        // Some programs end so many ranges that recording them stops: their count is no figure.
        AnnotationKind::Range => label().filter(|_| !tables.meta.contains_key("ranges")),
        AnnotationKind::Gc => Some("garbage collection".into()),
        AnnotationKind::EmptyCache => Some("torch.cuda.empty_cache()".into()),
    }
}

/// Lists the latest annotations, oldest first.
pub fn latest(ledger: &Ledger, tables: &Tables) -> Vec<Annotation> {
    let annotation = |m: &ledger::Annotation| {
        let kind = m.kind();
        Some(Annotation {
            step: m.step,
            at_s: m.at_ns as f64 / 1e9,
            name: name(tables, kind, m.label)?,
            kind: kind.name(),
        })
    };
    ledger.annotations().filter_map(annotation).collect()
}

/// Counts annotations by name, the most frequent first.
pub fn counts(ledger: &Ledger, tables: &Tables) -> Vec<AnnotationCount> {
    let count = |(kind, label, count): (AnnotationKind, u32, u32)| {
        Some(AnnotationCount { name: name(tables, kind, label)?, kind: kind.name(), count })
    };
    let mut counts: Vec<AnnotationCount> = ledger.annotation_counts().filter_map(count).collect();
    counts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    counts.truncate(COUNTED);
    counts
}
